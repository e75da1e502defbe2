"""What a call of the API costs beside the work: microseconds per call on a graph of one op, and of a decode step.

    python benchmarks/bench_overhead.py [--rounds 5]

The graph is y = x + x over 64 numbers, so all there is to measure is the way from Python to the kernel and back. Each
figure is the median over the rounds of the mean of a round.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.bench import machine_name
from tcim_lite.hmm import Graph, Op, Value, write_model

CALLS = 2000


def add_model(folder: Path, inputs: int = 2) -> Path:
    """`inputs` counts x and others that nothing reads: n, n2 and so on."""
    values = (
        Value("x", "input", "float32", (1, 64)),
        Value("y", "intermediate", "float32", (1, 64)),
        *(Value(f"n{i}" if i > 1 else "n", "input", "int32", (1,)) for i in range(1, inputs)),
    )
    graph = Graph("add", values, (Op("Add", (0, 0), (1,)),), (0, *range(2, inputs + 1)), (1,))
    path = folder / f"add{inputs}.hmm"
    write_model(path, graph, ())
    return path


def run_and_sync(module: tcim.Module) -> None:
    module.run()
    module.sync()


def microseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - started) / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        module = tcim.load(add_model(Path(folder)))
        batch = tcim.load(add_model(Path(folder), 465))  # as a decode of 28 layers and eight slots has
    length, row = np.array([1], np.int32), np.ones((1, 64), np.float32)
    half, device = row.astype(np.float16), module.get_dev_input("x")
    calls: dict[str, Callable[[], object]] = {
        "run() + sync()": lambda: run_and_sync(module),
        "run(sync=True)": lambda: module.run(sync=True),
        "run(sync=True), 465 inputs": lambda: batch.run(sync=True),
        "set_input(int32 [1])": lambda: module.set_input("n", length),
        "set_input(float32 [1, 64])": lambda: module.set_input("x", row),
        "set_input(float16 to float32)": lambda: module.set_input("x", half),
        "set_input(bound device tensor)": lambda: module.set_input("x", device),
        "get_output(name).numpy()": lambda: module.get_output("y").numpy(),
        "get_dev_input(name)": lambda: module.get_dev_input("x"),
        "get_input_info(name).shape": lambda: module.get_input_info("x").shape,
    }
    rounds = [{name: microseconds(call) for name, call in calls.items()} for _ in range(args.rounds)]
    print(f"{machine_name()}, medians of {args.rounds} rounds of {CALLS} calls\n\n| call | microseconds |\n|---|---|")
    for name in calls:
        print(f"| {name} | {statistics.median(round_[name] for round_ in rounds):.2f} |")


if __name__ == "__main__":
    main()
