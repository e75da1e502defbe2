"""This project and PyTorch on this GPU, in turn, beside the limits measured around them.

    python benchmarks/compare_cuda.py --work-dir DIR [--sizes 0.6B 8B] [--formats float16 w4a8h0_ssfp]
        [--batches 1 8] [--no-torch] [--out FILE.csv]

Same Qwen3 shapes with random weights, context 2,048, each side in a process of its own. A decode step is from set_input
to the logits on the host; `run` is the device's part of it. PyTorch is transformers in bf16: decode compiled and
replayed as a CUDA graph, prefill eager. DIR holds packages: 24 GB for 8B in two formats and one batch; in /dev/shm
they are made soonest.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from compare.shapes import SHAPES, cache_row_bytes, config_of, linear_operations
from compare.sides import Files, SideSpec
from cuda_sides import CONTEXT, DEPTH, PREFILL

FIELDS = ("date", "gpu", "size", "side", "batch", "what", "ms", "tokens_s", "of_torch", "limit", "share")


def run(*arguments: str, **environment: str) -> dict:
    """What a side prints; {} when it fails."""
    command = [sys.executable, str(Path(__file__).with_name("cuda_sides.py")), *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return {}
    print(*arguments, done.stdout.splitlines()[-1], file=sys.stderr, flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def torch_rows(size: str, work: Path) -> tuple[dict[str, float], list[dict]]:
    """Seconds by key as `ours` has them, and the rows."""
    config = work / f"{size}.json"
    config.write_text(json.dumps(config_of(size)))
    found = run("torch", str(config))
    rows = [
        row(size, "torch bf16", 1, what, found[key], tokens)
        for key, what, tokens in (
            (f"decode_{DEPTH}_s", f"decode at {DEPTH}", 1),
            ("prefill_s", f"prefill {PREFILL}", PREFILL),
        )
        if key in found
    ]
    return found, rows


def row(size: str, side: str, batch: int, what: str, seconds: float, tokens: int) -> dict:
    """The fields that need no other side."""
    made = {"size": size, "side": side, "batch": batch, "what": what}
    return made | {"ms": f"{seconds * 1e3:.3f}", "tokens_s": f"{tokens / seconds:.0f}"}


def our_rows(size: str, side: SideSpec, weight_bytes: int, ours: dict, torch: dict, limits: dict) -> list[dict]:
    rows = []
    for depth in (0, DEPTH):
        made = row(size, side.kind, side.batch, f"decode at {depth}", ours[f"decode_{depth}_s"], side.batch)
        if side.batch == 1 and f"decode_{depth}_s" in torch:
            made["of_torch"] = f"{torch[f'decode_{depth}_s'] / ours[f'decode_{depth}_s']:.2f}"
        rows.append(made)
        seconds = ours[f"run_{depth}_s"]
        read = weight_bytes + cache_row_bytes(size) * side.batch * (depth + 50)
        made = row(size, side.kind, side.batch, f"run at {depth}", seconds, side.batch)
        rows.append(made | {"limit": "GEMV bytes", "share": f"{read / seconds / limits['gemv_b_s']:.0%}"})
    if side.batch > 1:
        return rows
    for key, tokens in (("prefill_s", PREFILL), ("prefill_long_s", CONTEXT)):
        made = row(size, side.kind, 1, f"prefill {tokens}", ours[key], tokens)
        if key in torch:
            made["of_torch"] = f"{torch[key] / ours[key]:.2f}"
        # Chunks: the head, and what follows attention in the last block, run for the last row of each.
        operations = linear_operations(size, PREFILL) * (tokens // PREFILL)
        rows.append(made | {"limit": "fp16 GEMM", "share": f"{operations / ours[key] / limits['gemm_o_s']:.0%}"})
    return rows


def packages(size: str, args: argparse.Namespace) -> tuple[Files, list[SideSpec]]:
    """This project's packages of a size, made when missing; machines with such GPUs have many cores."""
    files = Files(args.work_dir, size, weights=False)
    sides = [
        SideSpec(f"cuda-{kind}-b{batch}", "tcim", kind, "", batch) for kind in args.formats for batch in args.batches
    ]
    return files, files.make(sides, at_once=len(sides))


def compare(size: str, args: argparse.Namespace) -> list[dict]:
    """All rows of a size, with the limits before and after."""
    files, sides = packages(size, args)
    before = run("ceilings")
    torch, rows = ({}, []) if args.no_torch else torch_rows(size, args.work_dir)
    for side in sides:
        if ours := run("ours", str(files.path(side)), TCIM_LITE_DEVICE="cuda"):
            rows += our_rows(size, side, files.token_bytes(side), ours, torch, before)
    for found in (before, run("ceilings")):
        for key, what, scale in (
            ("copy_b_s", "copy, TB/s", 1e12),
            ("gemv_b_s", "GEMV fp16, TB/s", 1e12),
            ("gemm_o_s", "GEMM fp16, TFLOP/s", 1e12),
        ):
            rows.append({"size": size, "side": "limits", "what": what, "share": f"{found[key] / scale:.3g}"})
    return [{"date": time.strftime("%Y-%m-%d"), "gpu": before["name"]} | made for made in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work-dir", type=Path, required=True, help="packages, made when missing")
    parser.add_argument("--sizes", nargs="+", choices=SHAPES, default=["0.6B", "8B"])
    parser.add_argument("--formats", nargs="+", default=["float16", "w4a8h0_ssfp"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1])
    parser.add_argument("--prepare", action="store_true", help="make the packages and stop")
    parser.add_argument("--no-torch", action="store_true", help="leave out PyTorch")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "compare_cuda.csv")
    args = parser.parse_args()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)

    rows: list[dict] = []
    for size in args.sizes:
        if args.prepare:
            packages(size, args)
            continue
        found = compare(size, args)
        rows += found
        print(f"\n| {' | '.join(FIELDS[2:])} |\n|{'---|' * len(FIELDS[2:])}")
        for made in found:
            print("| " + " | ".join(str(made.get(field, "")) for field in FIELDS[2:]) + " |", flush=True)
        with args.out.open("w", newline="") as file:  # after every size: what is measured is kept
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
