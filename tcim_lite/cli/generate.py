"""`tcim-lite generate`: one prompt, one answer."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .adapters import add_adapter_argument, the_adapter
from .opening import (
    add_model_arguments,
    devices_of,
    explained,
    open_package,
    quant_of,
    say,
    standard_input,
    start_log,
    take_model,
    text_of,
)
from .sampling import add_sampling_arguments, sampling_params
from .shown_files import ShownFiles, add_file_arguments

if TYPE_CHECKING:
    from .answering import Answer


HELP = "answer one prompt"
DESCRIPTION = (
    "Answers one prompt on standard output as it is made, and prints what it cost on standard error. Needs pip install "
    "'tcim-lite[chat]'."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_adapter_argument(parser, "the adapter that answers, of a package of `compile --lora` (the base model)")
    parser.add_argument("stdin", metavar="-", nargs="?", choices=("-",), help="read the prompt from standard input")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt")
    prompt.add_argument(
        "--prompt-file",
        metavar="FILE",
        type=Path,
        help="a file with the prompt (-: standard input); one newline at its end is dropped",
    )
    parser.add_argument("--chat", action="store_true", help="put the prompt into the package's chat template")
    parser.add_argument("--system", metavar="TEXT", help="with --chat: the system prompt")
    parser.add_argument(
        "--no-thinking", action="store_true", help="with --chat: ask the template for an answer at once"
    )
    add_file_arguments(parser, "with --chat: {} before the prompt")
    add_sampling_arguments(parser)
    parser.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="with --json: the log probabilities of the N likeliest tokens at each place",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument(
        "--show-stats", action=argparse.BooleanOptionalAction, default=True, help="the line on standard error"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the answer."""
    return explained(lambda: _generate(args), "chat")


def _generate(args: argparse.Namespace) -> int:
    take_model(args)
    text = _prompt(args)
    if (args.system is not None or args.no_thinking or args.image or args.audio) and not args.chat:
        raise ValueError(
            "--system, --no-thinking, --image and --audio need --chat: without it the model gets the prompt as it is"
        )
    text_of(args.system or "", "--system")
    if args.logprobs is not None and not args.json:
        raise ValueError("--logprobs needs --json")
    start_log(args)
    devices = devices_of(args)
    package = open_package(args, vision="")
    params = sampling_params(args, package.generation_defaults, logprobs=args.logprobs, adapter=the_adapter(args))

    from ..llm.tokenizer import encode_chat, load_tokenizer
    from .answering import answer, device_name, open_engine, show, stats_line, with_channels

    tokenizer = load_tokenizer(package.tokenizer_folder)
    files = ShownFiles(package, tokenizer, devices[0])
    shown = files.take_all(args)
    messages = [{"role": "system", "content": args.system}] if args.system is not None else []
    messages.append({"role": "user", "content": files.content(text, shown)})
    thinking = False if args.no_thinking else None
    tokens = files.encode(messages, shown, thinking) if args.chat else encode_chat(tokenizer, messages, raw=True)
    tokens, params = with_channels(tokenizer, tokens, params)
    engine = open_engine(args, package, tokenizer)
    prompt = files.place(tokens, shown, engine.slots.context_length)
    made = answer(engine, prompt, params, (lambda piece: None) if args.json else show)
    stats = made.stats(device_name(devices), quant_of(package))
    if args.json:
        print(json.dumps(_object(made, the_adapter(args) or package.name, stats), ensure_ascii=False))
    else:
        print(flush=True)
    if args.show_stats:
        say(stats_line(stats))
    return 0


def _prompt(args: argparse.Namespace) -> str:
    from ..llm.text_file import read_text

    given = [value for value in (args.stdin, args.prompt, args.prompt_file) if value is not None]
    if len(given) != 1:
        raise ValueError("give the prompt once: --prompt TEXT, --prompt-file FILE, or - for standard input")
    if args.prompt is not None:
        return text_of(args.prompt, "the prompt")
    if args.stdin or str(args.prompt_file) == "-":
        try:
            return standard_input().buffer.read().decode().removesuffix("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input is not UTF-8 text: {error}") from None
    return read_text(args.prompt_file).removesuffix("\n")


def _object(made: Answer, name: str, stats: dict[str, Any]) -> dict[str, Any]:
    assert made.last is not None
    found: dict[str, Any] = {
        "model": name,
        "text": made.text,
        "token_ids": made.tokens,
        "finish_reason": made.last.finish_reason,
        "stop_reason": made.last.stop_reason,
        "token_seconds": [round(seconds, 6) for seconds in made.token_s],
        "stats": stats,
    }
    if made.logprobs:
        found["logprobs"] = [
            {"token": item.token, "logprob": item.logprob, "top": [list(pair) for pair in item.top]}
            for item in made.logprobs
        ]
    return found
