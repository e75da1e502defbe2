"""What a call of the API costs beside the work: microseconds per call on a graph of one op, and of a decode step.

    python benchmarks/bench_overhead.py [--rounds 5] [--against OTHER/bin/python [--pairs 20]]

The graph is y = x + x over 64 numbers, so all there is to measure is the way from Python to the kernel and back. Each
figure is the median over the rounds of the mean of a round. With --against, processes of this Python and of one with
another build of tcim_lite take turns. The ratio is of the least time of each side, which other load disturbs least; the
quartiles of the ratios within pairs say how much it disturbed.
"""

import argparse
import json
import statistics
import subprocess
import sys
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


def measured(rounds: int) -> dict[str, list[float]]:
    """Microseconds of each call in each round."""
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
    each = [{name: microseconds(call) for name, call in calls.items()} for _ in range(rounds)]
    return {name: [times[name] for times in each] for name in calls}


def compared(other: str, pairs: int, rounds: int) -> None:
    """Prints this build's times, the other's, and their ratios."""
    sides: dict[str, list[dict[str, float]]] = {sys.executable: [], other: []}
    for number in range(pairs):
        for python in sides if number % 2 else reversed(sides):
            command = [python, "-P", __file__, "--json", "--rounds", str(rounds)]
            made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            sides[python].append({name: min(times) for name, times in json.loads(made).items()})
    mine, theirs = sides.values()
    print(f"{machine_name()}, {pairs} pairs of processes\n\n| call | this, us | other, us | ratio | quartiles |")
    print("|---|---:|---:|---:|---|")
    for name in mine[0]:
        ratios = [a[name] / b[name] for a, b in zip(mine, theirs, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        this, that = (min(side[name] for side in each) for each in (mine, theirs))
        print(f"| {name} | {this:.2f} | {that:.2f} | {this / that:.3f} | {low:.3f} to {high:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", metavar="PYTHON", help="another interpreter, which has another build")
    parser.add_argument("--pairs", type=int, default=20, help="of processes, with --against (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the microseconds as JSON")
    args = parser.parse_args()
    if args.against:
        return compared(args.against, max(2, args.pairs), args.rounds)
    found = measured(args.rounds)
    if args.json:
        return print(json.dumps(found))
    print(f"{machine_name()}, medians of {args.rounds} rounds of {CALLS} calls\n\n| call | microseconds |\n|---|---|")
    for name, times in found.items():
        print(f"| {name} | {statistics.median(times):.2f} |")


if __name__ == "__main__":
    main()
