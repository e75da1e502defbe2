"""What the engine costs beside the graph: a decode step of all slots against run() + sync() of the same graph.

    python benchmarks/bench_engine.py                          # the demo model, four slots
    python benchmarks/bench_engine.py --vocab 151936           # a tiny model with the vocabulary of Qwen3
    python benchmarks/bench_engine.py PACKAGE --profile        # and where the time goes

Each step of the engine is followed by a bare run of the same inputs, so both see the same machine; the cost is the
median of their differences. Greedy, sampled (temperature 0.6, top-k 20, top-p 0.95), and with text. Then a long prompt
joins: the answers beside it may wait for one chunk and one step at a time. And an answer is made beside free slots that
keep the rows of long prompts.
"""

import argparse
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from tcim_lite.bench import machine_name
from tcim_lite.cli import main as tcim_lite_main
from tcim_lite.llm import Package
from tcim_lite.llm.engine import Engine, SamplingParams
from tcim_lite.models.families import FAMILIES

DEMO = Path(__file__).parent.parent / "examples" / "demo_checkpoint"
KINDS = {
    "greedy": SamplingParams(ignore_eos=True),
    "greedy, penalties": SamplingParams(ignore_eos=True, presence_penalty=0.5, repetition_penalty=1.1),
    "sampled": SamplingParams(ignore_eos=True, temperature=0.6, top_k=20, top_p=0.95, seed=1),
    "greedy, 5 logprobs": SamplingParams(ignore_eos=True, logprobs=5),
}


class Bytes:
    """A tokenizer as cheap as one can be: the cost of the engine's own text handling is left."""

    eos_token_id = None

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(97 + i % 26) for i in ids)


def compile_package(folder: Path, vocab: int | None, batch: int) -> Path:
    arguments = ["compile", str(DEMO), "-o", str(folder / "out"), "-q", "--batch", str(batch)]
    if vocab is not None:
        (folder / "config.json").write_text(json.dumps(FAMILIES["qwen3"].tiny_config | {"vocab_size": vocab}))
        arguments[1] = str(folder)
        arguments.append("--random-weights")
    if tcim_lite_main(arguments):
        raise SystemExit("the package cannot be compiled")
    return folder / "out"


def fill(engine: Engine, params: SamplingParams, steps: int, requests: int) -> None:
    """Starts requests that go on for longer than `steps`, past their prefill."""
    for number in range(requests):
        engine.add(list(range(10 + number, 20 + number)), params)
    while sum(slot["state"] == "decode" for slot in engine.snapshot()) < requests:
        engine.step()
    for _ in range(min(20, steps)):
        engine.step()


def measure(engine: Engine, params: SamplingParams, steps: int) -> tuple[float, float, float]:
    """Medians in ms: the bare run, the step, and their difference."""
    module = engine.slots.stages[0].decode
    fill(engine, params, steps, len(engine.slots))
    bare, whole = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        engine.step()
        middle = time.perf_counter()
        module.run()  # writes the same rows again
        module.sync()
        whole.append((middle - begin) * 1e3)
        bare.append((time.perf_counter() - middle) * 1e3)
    end(engine)
    differences = [a - b for a, b in zip(whole, bare, strict=True)]
    return statistics.median(bare), statistics.median(whole), statistics.median(differences)


def measure_join(engine: Engine, tokens: int) -> tuple[float, float, float]:
    """What a prompt of `tokens` does to the answers beside it, in ms.

    Returns:
        The longest time between two of their tokens, the median decode step before, and the longest chunk alone.
    """
    params = SamplingParams(ignore_eos=True)
    engine.add([1, *range(tokens - 1)], SamplingParams(max_tokens=1))
    chunks = []
    while engine.has_work:  # while nothing decodes, a step is a chunk
        chunks.append(timed_step(engine))
    fill(engine, params, 20, len(engine.slots) - 1)
    steps = [timed_step(engine) for _ in range(50)]
    joined = engine.add([2, *range(tokens - 1)], params)
    gaps = []
    while not joined.tokens:
        gaps.append(timed_step(engine))
    end(engine)
    return max(gaps), statistics.median(steps), max(chunks)


def measure_kept(engine: Engine, tokens: int) -> tuple[float, float]:
    """One answer beside free slots that keep `tokens` rows each: medians of a step in ms.

    Returns:
        The engine's step, and one in which the free slots pass their number of rows, so that attention reads them.
    """
    others = len(engine.slots) - 1
    for number in range(others):
        engine.add([number, *range(tokens - 1)], SamplingParams(max_tokens=1))
    while engine.has_work:
        engine.step()
    fill(engine, SamplingParams(ignore_eos=True), 20, 1)
    stage, rows = engine.slots.stages[0], np.zeros_like(engine.slots._rows)
    busy = next(slot["slot"] for slot in engine.snapshot() if slot["state"] == "decode")
    parked, read = [], []
    for _ in range(30):
        parked.append(timed_step(engine))
        lengths = [len(held) for held in engine.slots.tokens]
        begin = time.perf_counter()
        stage.run_decode(rows, lengths, {busy: 0})
        read.append((time.perf_counter() - begin) * 1e3)
    engine.slots.tokens[:] = [[] for _ in engine.slots.tokens]  # the bare runs wrote over rows
    engine.abort(next(iter(engine.requests)))
    engine.step()
    return statistics.median(parked), statistics.median(read)


def timed_step(engine: Engine) -> float:
    begin = time.perf_counter()
    engine.step()
    return (time.perf_counter() - begin) * 1e3


def end(engine: Engine) -> None:
    for request_id in list(engine.requests):
        engine.abort(request_id)
    engine.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", type=Path, help="compiled with --batch B; default: the demo model")
    parser.add_argument("--vocab", type=int, help="compile a tiny model with so many tokens instead")
    parser.add_argument("--batch", type=int, default=4, help="slots of what is compiled here (default: 4)")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--profile", action="store_true", help="print where the steps of each kind spend their time")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        package = Package.open(args.package or compile_package(Path(temporary), args.vocab, args.batch))
        engine = Engine.open(package, stop_tokens=(), reuse_prefixes=False)
        slots = engine.slots
        steps = min(args.steps, slots.context_length - 40)
        print(machine_name())
        print(f"{package.name}: {len(slots)} slots, {slots.vocab_size} tokens, {steps} steps; medians in ms")
        print(f"{'':22} {'run + sync':>10} {'step':>8} {'cost':>8}")
        with_text = Engine(slots, tokenizer=Bytes(), reuse_prefixes=False)
        rows = [(name, engine, params) for name, params in KINDS.items()]
        for name, each, params in [*rows, ("greedy, text", with_text, KINDS["greedy"])]:
            bare, whole, cost = measure(each, params, steps)
            print(f"{name:22} {bare:10.3f} {whole:8.3f} {cost:8.3f}", flush=True)
            if args.profile:
                fill(each, params, steps, len(slots))
                with cProfile.Profile() as profile:
                    for _ in range(min(steps, 200)):
                        each.step()
                end(each)
                pstats.Stats(profile).sort_stats("tottime").print_stats(14)
        tokens = min(1800, slots.context_length - 80, slots.vocab_size)
        if len(slots) > 1:
            parked, read = measure_kept(engine, tokens)
            gap, step, chunk = measure_join(engine, tokens)
            print(f"beside free slots with {tokens} rows a step takes {parked:.3f}; {read:.3f} if it read them")
            print(f"a prompt of {tokens} joins: a pause of {gap:.3f}; a step {step:.3f}, a chunk at most {chunk:.3f}")


if __name__ == "__main__":
    main()
