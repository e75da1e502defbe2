"""Answer a queue of questions several at a time: a decode graph with B slots, each refilled as soon as its answer ends.

tcim-lite compile HF_DIR -o OUT --batch 4
python examples/qwen3_multibatch.py OUT --question "What is 12 + 30?" --question "Reverse: 1 2 3" ...
"""

import argparse
import time
from collections.abc import Callable, Collection

from tcim_lite.console import run_program
from tcim_lite.llm import Package, encode_chat, load_tokenizer
from tcim_lite.llm.engine import Engine, Request, SamplingParams, Slots

QUESTIONS = [
    "What is 12 + 30?",
    "Repeat after me: the quick brown fox jumps over the lazy dog",
    "Reverse: 1 2 3 4 5",
    "Hello, who are you?",
    "7加5等于多少？",
    "Reverse the list apple, banana, cherry",
    "What is 345 plus 678?",
    "Repeat after me: one",
]


def serve(engine: Engine, done: Callable[[Request], None]) -> dict[str, float]:
    """Answers all that is queued, calls done(request) as each answer ends, and returns what it cost."""
    requests = dict(engine.requests)
    started = time.perf_counter()
    while engine.has_work:
        for event in engine.step():
            if event.error:
                raise RuntimeError(event.error)
            if event.finish_reason:
                done(requests[event.request_id])
    total_s = time.perf_counter() - started
    stats = engine.stats
    return {
        "steps": stats.decode_steps,
        "occupancy": stats.decode_tokens / max(1, stats.decode_steps * len(engine.slots)),
        "decode_rate": stats.decode_tokens / stats.decode_s if stats.decode_steps else 0.0,
        "total_rate": sum(len(request.tokens) for request in requests.values()) / total_s,
    }


def queue_questions(engine: Engine, prompts: Collection[list[int]], args: argparse.Namespace) -> None:
    """A seed belongs to a request: question i gets --seed + i, whatever its neighbours and its slot."""
    for number, prompt in enumerate(prompts):
        seed = None if args.seed is None else args.seed + number
        params = SamplingParams(max_tokens=args.max_new_tokens, temperature=args.temperature, seed=seed)
        engine.add(prompt, params, request_id=str(number))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile --batch B`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--question", action="append", help="one request; repeat it. Default: eight for the demo model")
    parser.add_argument("--raw", action="store_true", help="give the question to the model without a chat template")
    parser.add_argument("--max-new-tokens", type=int, help="limit per answer; default: until eos or a full context")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 (default) is greedy")
    parser.add_argument("--seed", type=int, help="for a temperature above 0")
    parser.add_argument("--static", action="store_true", help="refill slots only when all are free, to compare")
    parser.add_argument("--show-tokens", action="store_true", help="print token ids instead of text")
    args = parser.parse_args()
    if args.max_new_tokens is not None and args.max_new_tokens < 1:
        parser.error(f"--max-new-tokens {args.max_new_tokens}: expected at least 1")

    package = Package.open(args.package, args.name)
    tokenizer = load_tokenizer(package.tokenizer_folder)
    slots = Slots.open(package)
    # All that is admitted is prefilled before the next decode step: nobody waits for a stream of tokens here.
    engine = Engine(
        slots,
        stop_tokens=package.stop_tokens(tokenizer),
        max_waiting=None,
        chunks_per_step=None,
        static=args.static,
    )
    questions = args.question or QUESTIONS
    prompts = [encode_chat(tokenizer, [{"role": "user", "content": q}], raw=args.raw or None) for q in questions]
    queue_questions(engine, prompts, args)
    print(f"{package.name}: {len(slots)} slots, {len(prompts)} requests, context {slots.context_length} tokens")
    if len(slots) == 1:
        print("  the decode graph has one slot; compile with --batch 4 to answer four questions at a time")

    def show(request: Request) -> None:
        answer = request.tokens if args.show_tokens else tokenizer.decode(request.tokens, skip_special_tokens=True)
        print(f"[slot {request.slot}] {questions[int(request.id)]}\n  {answer}", flush=True)

    cost = serve(engine, show)
    print(
        f"{cost['steps']} decode steps, slots busy {cost['occupancy']:.0%} | "
        f"decode {cost['decode_rate']:.0f} tok/s | with prefill {cost['total_rate']:.0f} tok/s"
    )


if __name__ == "__main__":
    run_program(main)
