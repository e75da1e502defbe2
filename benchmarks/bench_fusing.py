"""What the fusing of written-out patterns gains: ops and time of networks with the patterns and without them, in turn.

    python benchmarks/bench_fusing.py [--only TEXT] [--rounds N] [--cpu] [--write]

Both sides fold constants, make batch norms part of convolutions and biases part of products, and fuse x * Sigmoid(x).
Runs alternate in one process; a figure is the least of all. --cpu counts the CPU time of the process instead,
all threads together, for machines that do other work. --write puts the table into docs/onnx.md. Needs torch, onnx
and, for the encoders, transformers.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "onnx"))

import numpy as np
import torch
from zoo import NETWORKS, build, export

from tcim_lite.hmm import model_bytes
from tcim_lite.models.common.profiles import profile_for
from tcim_lite.models.onnx.fuse import PATTERNS, fuse
from tcim_lite.models.onnx.fuse.functions import silu
from tcim_lite.models.onnx.fuse.linear import conv_batch_norm, matmul_bias
from tcim_lite.models.onnx.lowering import lower_network
from tcim_lite.models.onnx.read import read
from tcim_lite.runtime import Module

NAMES = ("vit_b_16", "whisper_tiny_encoder", "clip_vit_b_32_image", "convnext_tiny")
OPSETS = (16, 17)  # without and with LayerNormalization
SIDES = ((conv_batch_norm, silu, matmul_bias), PATTERNS)
PAGE = ROOT / "docs" / "onnx.md"
_TABLE = re.compile(r"(?<=<!-- fused: benchmarks/bench_fusing.py -->\n)(.*?)(?=<!-- fused end -->)", re.DOTALL)
HEAD = [
    "| network | opset | ops: plain, fused | float32, ms: plain, fused | ratio | w8a8, ms: plain, fused | ratio |",
    "|---|---|---|---|---|---|---|",
]


def row(name: str, opset: int, rounds: int, clock: Callable[[], float]) -> str:
    """A row of the table."""
    network = NETWORKS[name]
    module, x = build(network, network.full)
    model = export(module, x, opset)
    counts, cells = [], []
    for quant in ("float32", "w8a8h1_sefp"):
        modules, counts = [], []
        for patterns in SIDES:
            graph, weights, _ = lower_network(fuse(read(model, None), patterns), profile_for(quant))
            counts.append(sum(op.kind != "Reshape" for op in graph.ops))
            modules.append(Module.load(model_bytes(graph, weights)))
        times = [float("inf")] * 2
        for side in modules:
            side.set_input("x", x.astype(np.int32) if x.dtype.kind == "i" else x)
        for turn in range(1 + rounds):
            for index, side in enumerate(modules):
                begin = clock()
                side.run(sync=True)
                if turn:
                    times[index] = min(times[index], clock() - begin)
        plain, fused = (1000 * value for value in times)
        cells += [f"{plain:.1f}, {fused:.1f}", f"{fused / plain:.2f}"]
    return f"| {name} | {opset} | {counts[0]}, {counts[1]} | {' | '.join(cells)} |"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose name contains TEXT")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="timed runs of each side (%(default)s)")
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of time")
    parser.add_argument("--write", action="store_true", help="put the table into docs/onnx.md")
    args = parser.parse_args()
    torch.set_num_threads(2)
    rows = []
    for name in NAMES:
        for opset in OPSETS if args.only in name else ():
            rows.append(row(name, opset, args.rounds, time.process_time if args.cpu else time.perf_counter))
            print(rows[-1], flush=True)
    if args.write:
        table = "\n".join([*HEAD, *rows]) + "\n"
        PAGE.write_text(_TABLE.sub(lambda _: table, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
