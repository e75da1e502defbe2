"""Keep the KV caches of long prompts on the host, so that the next prompt that begins alike skips most of its prefill.

tcim-lite compile HF_DIR -o OUT
python examples/qwen3_prefix_cache.py OUT
python examples/qwen3_prefix_cache.py OUT --no-cache      # the same answers, the whole prefill
"""

import argparse
from pathlib import Path

from tcim_lite.console import run_program
from tcim_lite.llm import Package, encode_chat, load_tokenizer
from tcim_lite.llm.engine import Engine, Request, SamplingParams

NAMES = "Alice Bob Carol Dave Erin Frank Grace Heidi Ivan Judy Mallory Nina Oscar Peggy Rupert Sybil Trent Victor"
# Two phone books. Asked in turns, each question finds the other book's rows on the device.
DOCUMENTS = ["\n".join(f"{name}: {first + 7 * i}" for i, name in enumerate(NAMES.split())) for first in (5551, 2201)]
QUESTIONS = ["What is the number of Bob?", "What is the number of Victor?", "What is the number of Judy?"]


def answer(engine: Engine, prompt: list[int], limit: int | None) -> Request:
    """Answers one prompt. The engine restores what it has of its beginning, and keeps what leaves the slot."""
    request = engine.add(prompt, SamplingParams(max_tokens=limit))
    while engine.has_work:
        for event in engine.step():
            if event.error:
                raise RuntimeError(event.error)
    return request


def read_document(path: Path) -> str:
    if (path.exists() and not path.is_file()) or path.stat().st_size > 16 << 20:
        raise ValueError(f"--document {path}: expected a text file of at most 16 MiB")
    return path.read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument(
        "--document", action="append", type=Path, help="text file that every question is asked about; repeatable"
    )
    parser.add_argument("--question", action="append", help="asked about each document; repeat it")
    parser.add_argument("--raw", action="store_true", help="give the question to the model without a chat template")
    parser.add_argument("--max-new-tokens", type=int, help="limit per answer; default: until eos or a full context")
    parser.add_argument("--capacity-mb", type=float, default=1024, help="host memory for cache rows (default: 1024)")
    parser.add_argument("--no-cache", action="store_true", help="prefill every prompt from its first token")
    args = parser.parse_args()
    if not 0 <= args.capacity_mb < float("inf"):
        parser.error(f"--capacity-mb {args.capacity_mb}: expected 0 or more")

    documents = [read_document(path) for path in args.document] if args.document else DOCUMENTS
    package = Package.open(args.package, args.name)
    tokenizer = load_tokenizer(package.tokenizer_folder)
    engine = Engine.open(
        package,
        stop_tokens=package.stop_tokens(tokenizer),
        reuse_prefixes=not args.no_cache,
        prefix_cache_bytes=0 if args.no_cache else int(args.capacity_mb * 1e6),
    )
    prefill_s = 0.0
    for question in args.question or QUESTIONS:
        for number, document in enumerate(documents, 1):
            prompt = encode_chat(
                tokenizer, [{"role": "user", "content": f"{document}\n{question}"}], raw=args.raw or None
            )
            request = answer(engine, prompt, args.max_new_tokens)
            seconds = request.first_token - request.admitted
            prefill_s += seconds
            print(f"[document {number}] {question}\n  {tokenizer.decode(request.tokens, skip_special_tokens=True)}")
            print(
                f"  [{len(prompt)} prompt tokens: {request.cached_tokens} there already, "
                f"{len(prompt) - request.cached_tokens} prefilled, first token after {seconds * 1e3:.1f} ms]",
                flush=True,
            )
    stats = engine.stats
    print(
        f"{stats.prompt_tokens} prompt tokens: {stats.cached_tokens} there already, "
        f"{stats.prompt_tokens - stats.cached_tokens} prefilled, first tokens after {prefill_s * 1e3:.1f} ms "
        f"in all | host cache {engine.host_rows.used_bytes / 1e6:.1f} MB"
    )
    if stats.cached_tokens:
        print(f"saved {stats.cached_tokens / stats.prompt_tokens:.0%} of the prefill; --no-cache shows the time")


if __name__ == "__main__":
    run_program(main)
