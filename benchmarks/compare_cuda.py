"""How fast randomly initialised Qwen3 runs on this GPU, next to PyTorch and to what the GPU can do.

    python benchmarks/compare_cuda.py [--shapes 0.6B 8B] [--quants float16 w4a8h0_ssfp] [--batch 1] [--no-torch]

Prints a table and appends it to benchmarks/results/cuda.csv. Each side runs in a process of its own; the ceilings are
measured before and after. PyTorch is transformers in bf16, decode compiled with CUDA graphs, prefill eager.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench_qwen3 import ROOT, package_of
from compare.shapes import SHAPES, cache_row_bytes, config_of, linear_operations
from cuda_sides import DEPTH, PREFILL

RESULTS = ROOT / "benchmarks" / "results" / "cuda.csv"


def side(*arguments: str, **environment: str) -> dict:
    command = [sys.executable, str(Path(__file__).with_name("cuda_sides.py")), *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{arguments} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return {}
    print(*arguments, done.stdout.splitlines()[-1], file=sys.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def rows_of(shape: str, quant: str, batch: int, weight_bytes: int, ours: dict, roof: dict) -> list[tuple]:
    cache = cache_row_bytes(shape) * batch  # bytes of a token of every slot
    rows = []
    for depth in (0, DEPTH):
        seconds = ours[f"decode_{depth}_s"]
        read = weight_bytes + cache * (depth + 50)
        share = read / ours[f"run_{depth}_s"] / roof["gemv_b_s"]
        rows.append(
            (shape, quant, batch, f"decode at {depth}", f"{seconds * 1e3:.3f} ms", f"{batch / seconds:.0f} tok/s",
             f"run {ours[f'run_{depth}_s'] * 1e3:.3f} ms, {share:.0%} of the GEMV rate")
        )  # fmt: skip
    if batch == 1:
        share = linear_operations(shape, PREFILL) / ours["prefill_s"] / roof["gemm_o_s"]
        rows.append(
            (shape, quant, batch, f"prefill {PREFILL}", f"{ours['prefill_s'] * 1e3:.2f} ms",
             f"{PREFILL / ours['prefill_s']:.0f} tok/s", f"{share:.0%} of the fp16 GEMM rate")
        )  # fmt: skip
        long = ours["prefill_long_s"]
        rows.append((shape, quant, batch, "prefill 2048", f"{long * 1e3:.2f} ms", f"{2048 / long:.0f} tok/s", ""))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["0.6B", "8B"])
    parser.add_argument("--quants", nargs="+", default=["float16", "w4a8h0_ssfp"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--no-torch", action="store_true", help="leave out PyTorch")
    args = parser.parse_args()

    roofs = [side("ceilings")]
    table = []
    for shape in args.shapes:
        if not args.no_torch:
            config = ROOT / "out" / "bench" / f"{shape}.json"
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(json.dumps(config_of(shape)))
            theirs = side("torch", str(config))
            for what, key in (
                () if not theirs else ((f"decode at {DEPTH}", f"decode_{DEPTH}_s"), (f"prefill {PREFILL}", "prefill_s"))
            ):
                table.append(
                    (shape, "torch bf16", 1, what, f"{theirs[key] * 1e3:.3f} ms", f"{1 / theirs[key]:.0f} a second", "")
                )
        for quant in args.quants:
            folder, weight_bytes = package_of(shape, quant, args.batch)
            ours = side("ours", str(folder), TCIM_LITE_DEVICE="cuda")
            if ours:
                table += rows_of(shape, quant, args.batch, weight_bytes, ours, roofs[0])
    roofs.append(side("ceilings"))
    for roof in roofs:
        table.append(
            ("", "ceilings", "", roof["name"], f"copy {roof['copy_b_s'] / 1e12:.2f} TB/s",
             f"GEMV {roof['gemv_b_s'] / 1e12:.2f} TB/s", f"GEMM {roof['gemm_o_s'] / 1e12:.0f} TFLOP/s")
        )  # fmt: skip
    print("| shape | side | batch | what | time | rate | against |\n|---|---|---|---|---|---|---|")
    for row in table:
        print("| " + " | ".join(map(str, row)) + " |")
    RESULTS.parent.mkdir(exist_ok=True)
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(["date", "shape", "side", "batch", "what", "time", "rate", "against"])
        for row in table:
            writer.writerow([time.strftime("%Y-%m-%d"), *row])


if __name__ == "__main__":
    main()
