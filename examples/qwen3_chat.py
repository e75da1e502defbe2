"""Chat with a compiled package through the runtime API, step by step as the vendor's example does.

tcim-lite compile HF_DIR -o OUT
python examples/qwen3_chat.py OUT
"""

import argparse
import sys
import time

import tcim_lite.runtime as tcim
from tcim_lite.console import run_program
from tcim_lite.llm import (
    Generator,
    Package,
    Sampler,
    cache_names,
    encode_chat,
    load_tokenizer,
    print_answer,
    share_carried,
)


def load(package: Package) -> tuple[tcim.Module, tcim.Module]:
    """Loads prefill and decode so that they share one copy of the weights and of the KV caches."""
    weights = tcim.WeightManager(0)
    prefill = tcim.load(str(package.prefill_path), option=tcim.Option(weights))

    # Declared as dummies, decode's caches get no memory of their own ...
    option = tcim.Option(weights)
    option.set_dummy_tensors(cache_names(prefill))
    decode = tcim.load(str(package.decode_path), option=option)
    # ... because they are prefill's: from here on both graphs read and write the same buffers.
    for name in cache_names(prefill):
        decode.set_input(name, prefill.get_dev_input(name))
    share_carried(prefill, [decode])  # likewise the states of linear attention, where a model has it
    return prefill, decode


def sampler_of(generator: Generator, args: argparse.Namespace) -> Sampler:
    """Greedy unless the command line says otherwise; --sample starts from the package's generation_config.json."""
    given = {name: getattr(args, name) for name in ("temperature", "top_k", "top_p") if getattr(args, name) is not None}
    return generator.defaults.sampler(args.seed, **given) if args.sample else Sampler(**given, seed=args.seed)


def answer(generator: Generator, tokenizer, stop_tokens, messages: list[dict], args: argparse.Namespace) -> str:
    """Streams the reply to the conversation so far, prints what it cost, and returns it."""
    thinking = False if args.no_thinking else None
    prompt = encode_chat(tokenizer, messages, raw=args.raw or None, enable_thinking=thinking)
    tokens = generator.generate(prompt, sampler_of(generator, args), args.max_new_tokens, stop_tokens)
    reply = print_answer(tokens, tokenizer)
    print(f"  [{generator.stats}]", flush=True)
    return reply


def questions(args: argparse.Namespace):
    """The questions given on the command line, else those typed or piped in."""
    if args.question:
        for question in args.question:
            print(f"> {question}")
            yield question
        return
    while True:
        try:
            question = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if not sys.stdin.isatty():
            print(f"> {question}")
        if question.strip():
            yield question


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--question", action="append", help="ask this and stop; repeat it for further turns")
    parser.add_argument("--max-new-tokens", type=int, help="limit per answer; default: until eos or a full context")
    parser.add_argument("--raw", action="store_true", help="give the questions to the model without a chat template")
    parser.add_argument("--no-thinking", action="store_true", help="ask the chat template for an answer at once")
    parser.add_argument(
        "--sample",
        action="store_true",
        help="choose tokens as the model's generation_config.json says (default: greedy)",
    )
    parser.add_argument("--temperature", type=float, help="0 is greedy")
    parser.add_argument("--top-k", type=int, help="sample from the k likeliest tokens; 0: all")
    parser.add_argument("--top-p", type=float, help="sample from the likeliest that reach p; 1: all")
    parser.add_argument("--seed", type=int, help="equal seeds give equal answers")
    args = parser.parse_args()

    started = time.perf_counter()
    package = Package.open(args.package, args.name)
    prefill, decode = load(package)
    loaded = time.perf_counter() - started
    tokenizer = load_tokenizer(package.tokenizer_folder)
    stop_tokens = package.stop_tokens(tokenizer)
    generator = Generator(prefill, decode, package.embedding_for(prefill), package.generation_defaults)
    print(f"{package.name}: loaded in {loaded * 1e3:.0f} ms, context {generator.context_length} tokens")
    messages: list[dict] = []
    for question in questions(args):
        messages.append({"role": "user", "content": question})
        reply = answer(generator, tokenizer, stop_tokens, messages, args)
        messages.append({"role": "assistant", "content": reply})


if __name__ == "__main__":
    run_program(main)
