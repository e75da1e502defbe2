"""How decode throughput grows with the batch: one step of B=1 and one of each larger batch in turn, in one process.

    python benchmarks/bench_batch.py [--shape 0.6B] [--quant w4a8h0_ssfp] [--batches 1 2 4 8] [--depth 0] [--steps 48]

The decode graphs share their weights through one WeightManager, so only activations and caches differ. Figures are
medians over the steps; the ratio is the median of each step's own ratio to the B=1 step beside it.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
from compare.shapes import SHAPES
from compare.sides import Files, SideSpec

import tcim_lite.runtime as tcim
from tcim_lite.bench import machine_name


def load_decode(folder: Path, depth: int, manager: tcim.WeightManager) -> tcim.Module:
    module = tcim.load(next(folder.glob("*_decode.hmm")), tcim.Option(manager))
    name = module.get_input_name(0)
    shape_of_input = module.get_input_info(name).shape
    module.set_input(name, np.random.default_rng(0).standard_normal(shape_of_input, np.float32))
    for index in range(module.get_num_inputs()):
        name = module.get_input_name(index)
        if name.startswith("valid_length"):
            module.set_input(name, np.array([depth], np.int32))
        elif name.startswith("current_length"):
            module.set_input(name, np.array([1], np.int32))
    return module


def step_seconds(module: tcim.Module) -> float:
    started = time.perf_counter()
    module.run()
    module.sync()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="0.6B")
    parser.add_argument("--quant", default="w4a8h0_ssfp")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--depth", type=int, default=0, help="tokens in the cache of every slot")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--work-dir", type=Path, default=Path("out/bench"), help="model files, made when missing")
    args = parser.parse_args()

    batches = sorted({1, *args.batches})
    files = Files(args.work_dir, args.shape, weights=False)
    sides = {batch: SideSpec(f"tcim-{args.quant}-b{batch}", "tcim", args.quant, "", batch) for batch in batches}
    files.make(list(sides.values()))
    manager = tcim.WeightManager(0)
    modules = {batch: load_decode(files.path(side), args.depth, manager) for batch, side in sides.items()}
    seconds: dict[int, list[float]] = {batch: [] for batch in batches}
    for step in range(args.steps + 2):
        for batch, module in modules.items():
            elapsed = step_seconds(module)
            if step >= 2:
                seconds[batch].append(elapsed)

    print(
        f"Qwen3-{args.shape} shape, {args.quant}, depth {args.depth}, {machine_name()}, medians of {args.steps} steps"
    )
    print("\n| batch | step | tokens/s | against B=1 |\n|---|---|---|---|")
    for batch in batches:
        ratio = statistics.median(batch * one / mine for one, mine in zip(seconds[1], seconds[batch], strict=True))
        step = statistics.median(seconds[batch])
        print(f"| {batch} | {step * 1e3:.2f} ms | {batch / step:.1f} | {ratio:.2f} x |")


if __name__ == "__main__":
    main()
