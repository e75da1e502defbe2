"""`tcim-lite chat`: a conversation at a terminal."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..console import take_interrupts
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
from .shown_files import KINDS, Shown, ShownFiles, add_file_arguments, counted

if TYPE_CHECKING:
    from ..llm.engine import Engine
    from ..llm.package import Package
    from ..serve.reply_parts import Parts

_HELP = """/image FILE  show an image with the next question
/audio FILE  play a sound with the next question
/reset       forget the conversation
/save FILE   write it as JSON, a list of messages
/exit        end, as Ctrl-D does
Ctrl-C       end the answer that is being made"""


HELP = "talk with a model"
DESCRIPTION = (
    "A conversation with a model; /help lists what else can be typed. Ctrl-C ends an answer, Ctrl-D the chat. Needs "
    "pip install 'tcim-lite[chat]'."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_adapter_argument(parser, "the adapter that answers, of a package of `compile --lora` (the base model)")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    add_file_arguments(parser, "{} with the first question")
    parser.add_argument(
        "--thinking",
        choices=("show", "hide", "off"),
        default="show",
        help="the reasoning before an answer: print it, hide it, or ask the template for none (%(default)s)",
    )
    add_sampling_arguments(parser)
    parser.add_argument("--show-stats", action="store_true", help="print what each answer cost, on standard error")


def run(args: argparse.Namespace) -> int:
    """Talks until the input ends."""
    return explained(lambda: _chat(args), "chat")


def _chat(args: argparse.Namespace) -> int:
    take_model(args)
    is_terminal = standard_input().isatty()
    text_of(args.system or "", "--system")
    start_log(args)
    devices_of(args)  # refuses devices that are not there before a checkpoint is compiled
    package = open_package(args, vision="")

    from ..llm.tokenizer import load_tokenizer
    from .answering import open_engine

    tokenizer = load_tokenizer(package.tokenizer_folder)
    engine = open_engine(args, package, tokenizer)
    if is_terminal:
        import readline  # noqa: F401  # input() edits lines and remembers them

        context = engine.slots.context_length
        print(f"{package.name}, context {context} tokens. /help lists commands, Ctrl-D ends.")
    Chat(args, package, engine, tokenizer).talk()
    return 0


class Chat:
    """A conversation.

    Args:
        args: Of the command line.
        package: Being used.
        engine: Over it.
        tokenizer: Its own.
    """

    def __init__(self, args: argparse.Namespace, package: Package, engine: Engine, tokenizer: Any):
        self._args, self._engine, self._tokenizer = args, engine, tokenizer
        self._params = sampling_params(args, package.generation_defaults, adapter=the_adapter(args))
        self._package = package
        self._reading = self._stopped = False
        self._messages: list[dict[str, Any]] = []
        self._files = ShownFiles(package, tokenizer, devices_of(args)[0])
        self._shown: list[Shown] = []  # with the messages
        self._reset()
        self._next = self._files.take_all(args)  # with the next question

    def talk(self) -> None:
        """Reads lines until they end."""
        take_interrupts(self._interrupted)
        is_terminal = sys.stdin.isatty()
        while True:
            try:
                self._reading = True
                line = input("> " if is_terminal else "").strip()
                self._reading = False
            except EOFError:
                if is_terminal:
                    print()
                return
            except KeyboardInterrupt:
                print("\n(Ctrl-D or /exit ends the chat)")
                continue
            if not is_terminal and line:
                print(f"> {line}")
            if line == "/exit":
                return
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._answer(line)

    def _interrupted(self, signal: int, frame: FrameType | None) -> None:
        self._stopped = True
        if self._reading:
            self._reading = False
            raise KeyboardInterrupt

    def _command(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        if command[1:] in KINDS and rest:
            try:
                self._next.append(self._files.take(Path(rest).expanduser(), command[1:]))
                print(f"({counted(self._next)} with the next question)")
            except (ValueError, RuntimeError, ImportError) as error:
                say(f"error: {error}")
        elif command == "/reset":
            self._reset()
            print("(the conversation is forgotten)")
        elif command == "/save" and rest:
            try:
                text = json.dumps(self._messages, ensure_ascii=False, indent=2)
                Path(rest).expanduser().write_text(text + "\n", encoding="utf-8")
                print(f"({len(self._messages)} messages in {rest})")
            except OSError as error:
                say(f"error: {rest}: {error.strerror}")
        else:
            print(_HELP if command == "/help" else f"{command}: not a command of this form\n{_HELP}")

    def _reset(self) -> None:
        system = self._args.system
        self._messages = [] if system is None else [{"role": "system", "content": system}]
        self._shown, self._next = [], []

    def _answer(self, question: str) -> None:
        """Asks, prints the answer, and remembers both; a question that cannot be asked is forgotten."""
        from .answering import answer, device_name, prompt_end, stats_line, with_channels

        asked = [*self._messages, {"role": "user", "content": self._files.content(question, self._next)}]
        shown, self._next = [*self._shown, *self._next], []
        self._stopped = False
        try:
            text_of(question, "the question")
            thinking = False if self._args.thinking == "off" else None
            tokens = self._files.encode(asked, shown, thinking)
            tokens, params = with_channels(self._tokenizer, tokens, self._params)
            view = View(prompt_end(self._tokenizer, tokens), shows_thoughts=self._args.thinking == "show")
            prompt = self._files.place(tokens, shown, self._engine.slots.context_length)
            made = answer(self._engine, prompt, params, view.add, lambda: self._stopped)
            view.end()
        except (ValueError, RuntimeError) as error:
            say(f"error: {error}")
            if len(self._messages) > 1:
                say("(the question is forgotten; /reset forgets the conversation)")
            return
        assert made.last is not None
        self._messages, self._shown = [*asked, {"role": "assistant", "content": view.content}], shown
        if made.last.finish_reason == "abort":
            print("(ended)")
        elif made.last.finish_reason == "length":
            print("(cut off: --max-new-tokens, or the context is full)")
        if self._args.show_stats:
            say(stats_line(made.stats(device_name(devices_of(self._args)), quant_of(self._package))))


class View:
    """Prints a reply as it grows: thoughts between lines of their own, or not at all.

    Args:
        prompt: Its end, which says what form the reply has.
        shows_thoughts: Print them.

    Attributes:
        content: What was said, without thoughts.
    """

    def __init__(self, prompt: str, *, shows_thoughts: bool):
        from ..serve.reply_forms import parts_of

        self._parts, self._shows, self.content = parts_of(prompt), shows_thoughts, ""
        self._thinks = False

    def add(self, text: str) -> None:
        """More text."""
        self._print(self._parts.add(text))

    def end(self) -> None:
        """What was held back, and the end of the line."""
        self._print(self._parts.rest())
        print(flush=True)

    def _print(self, parts: Parts) -> None:
        from .answering import show

        if parts.reasoning and self._shows:
            show(parts.reasoning if self._thinks else f"(thinks) {parts.reasoning}")
            self._thinks = True
        if parts.content:
            if self._thinks:
                show("\n(answers) ")
                self._thinks = False
            show(parts.content)
            self.content += parts.content
