"""What a recording costs: decode with and without one, in turn, in one process.

    tcim-lite compile benchmarks/shapes/qwen3-0.6b -o OUT --random-weights
    python benchmarks/bench_record.py OUT [--calls 10000] [--data none] [--recorder python]

The recorder is that of `TCIM_LITE_LAYERS=record:FILE`, or the one in Python that wraps a module from outside.

A step is seven calls, as a chat makes them: three inputs, run, sync, get_output, numpy. Each figure is a median over
the steps of a round. Rounds of the two sides alternate and are short, and the cost is the median over pairs of them, so
that what else the machine does falls on both. It includes the fingerprints of inputs and logits.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite import layers
from tcim_lite.bench import machine_name
from tcim_lite.llm import Package
from tcim_lite.replay import recording_of

CALLS_PER_STEP = 7
ROUNDS = 50


def step(module: tcim.Module, row: np.ndarray, position: int) -> None:
    module.set_input("input_1", row)
    module.set_input("valid_length", np.int32(position))
    module.set_input("current_length", np.int32(1))
    module.run()
    module.sync()
    module.get_output("logits").numpy()


def timed_steps(module: tcim.Module, row: np.ndarray, steps: int) -> list[float]:
    """Seconds of each; the context is filled from its beginning."""
    times = []
    for position in range(steps):
        started = time.perf_counter()
        step(module, row, position % 64)
        times.append(time.perf_counter() - started)
    return times


@contextlib.contextmanager
def recorded(recorder: str, file: str, data: str) -> Iterator[None]:
    """Records what is called inside."""
    if recorder == "python":
        with recording_of(tcim, file, data=data):
            yield
        return
    layers.enable("record", file=file, data=data)
    yield
    layers.disable("record")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--calls", type=int, default=10_000, help="recorded calls (default: %(default)s)")
    parser.add_argument("--data", default="none", help="as TCIM_LITE_RECORD_DATA (default: %(default)s)")
    parser.add_argument("--recorder", choices=("layer", "python"), default="layer")
    args = parser.parse_args()
    module = tcim.load(Package.open(args.package).decode_path)
    info = module.get_input_info("input_1")
    row = np.random.default_rng(1).standard_normal(info.shape).astype(np.float32)
    steps = max(1, args.calls // CALLS_PER_STEP // ROUNDS)
    timed_steps(module, row, 10)
    sides: dict[bool, list[float]] = {False: [], True: []}  # recorded or not: the median step of each round, in seconds
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            for side in (False, True) if number % 2 else (True, False):
                file = f"{folder}/{number}.tcimrec"
                with recorded(args.recorder, file, args.data) if side else contextlib.nullcontext():
                    sides[side].append(statistics.median(timed_steps(module, row, steps)))
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    pairs = list(zip(sides[False], sides[True], strict=True))
    shares = [(with_ / without - 1) * 100 for without, with_ in pairs]
    low, middle, high = statistics.quantiles(shares, n=4)
    calls = ROUNDS * steps * CALLS_PER_STEP
    print(
        f"{machine_name()}, {args.package.name}, {args.recorder}, data={args.data}: "
        f"{calls} recorded calls, {size / 1e6:.1f} MB"
    )
    without, with_ = (statistics.median(times) * 1e3 for times in sides.values())
    print(f"a step: {without:.3f} ms, recorded {with_:.3f} ms: {middle:+.2f} % (quartiles {low:+.2f}, {high:+.2f})")
    cost = statistics.median(with_ - without for without, with_ in pairs)
    print(f"a call: {cost / CALLS_PER_STEP * 1e6:+.2f} microseconds")


if __name__ == "__main__":
    main()
