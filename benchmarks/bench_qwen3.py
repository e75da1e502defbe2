"""How fast a randomly initialised Qwen3 runs here, next to this machine's limits and to transformers.

    python benchmarks/bench_qwen3.py [--shape 0.6B] [--quant w4a8h0_ssfp] [--rounds 5]

Every side runs in a process of its own, in turn (A B A B), with the machine's limits measured between the turns, since
the bandwidth of a virtual machine changes by the minute. Figures are medians over the rounds, ratios medians of each
round's own ratio; the rows are appended to benchmarks/results/qwen3.csv.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from compare.limits import probe
from compare.shapes import SHAPES, cache_row_bytes, config_of, linear_operations
from qwen3_sides import CONTEXT, DECODED, DEPTH, PREFILL

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "qwen3.csv"


def run_side(side: str, folder: Path, threads: int) -> dict:
    environment = os.environ | {"BENCH_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, str(Path(__file__).with_name("qwen3_sides.py")), side, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{side} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def package_of(shape: str, quant: str, batch: int = 1) -> tuple[Path, int]:
    """A freshly compiled package, and the bytes of its weights that one decode step reads."""
    from tcim_lite.hmm import read
    from tcim_lite.models.qwen3.compile import CompileOptions, compile_checkpoint

    folder = ROOT / "out" / "bench" / (f"{shape}-{quant}" + (f"-b{batch}" if batch > 1 else ""))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(shape)))
    compile_checkpoint(
        CompileOptions(
            checkpoint=folder,
            output=folder,
            prefill_length=PREFILL,
            context_length=CONTEXT,
            batch=batch,
            quant=quant,
            random_weights=True,
        )
    )
    weights = read(folder / "qwen3_decode.hmm").weights
    return folder, sum(entry.nbytes for entry in weights if "rope" not in entry.name)


def median(rows: list[dict], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def measure(args: argparse.Namespace, folder: Path) -> tuple[list[dict], list[dict], dict[str, list[dict]]]:
    """The machine's limits, our results and the others', a row per round."""
    limits, ours, others = [], [], {"bfloat16": [], "float32": []}
    for round_ in range(args.rounds):
        limits.append(probe())
        ours.append(run_side("ours", folder, limits[0]["threads"]))
        for dtype, results in others.items():
            if not args.no_transformers and round_ < 3:
                results.append(run_side(dtype, folder, limits[0]["threads"]))
        print(f"round {round_ + 1}: {limits[-1]}, decode {1 / ours[-1]['decode_0_s']:.1f} tok/s", file=sys.stderr)
    return limits, ours, others


def table_of(shape: str, weight_bytes: int, limits: list[dict], ours: list[dict], others: dict) -> list[tuple]:
    """Rows of (what, result, against what)."""

    def share(key: str, amount: float, limit: str) -> str:
        ratios = [amount / mine[key] / roof[limit] for mine, roof in zip(ours, limits, strict=True)]
        return f"{statistics.median(ratios):.0%} of the {'int8 peak' if limit == 'int8' else 'read bandwidth'}"

    row_bytes = cache_row_bytes(shape)
    pair_bytes = weight_bytes + row_bytes * CONTEXT
    live_bytes = weight_bytes + row_bytes * (DEPTH + DECODED // 2)
    load, resident = median(ours, "load_first_s"), median(ours, "resident_bytes")
    prefill, shallow, deep = (median(ours, key) for key in ("prefill_s", "decode_0_s", f"decode_{DEPTH}_s"))
    table = [
        (
            "read bandwidth",
            f"{median(limits, 'read') / 1e9:.1f} GB/s",
            f"1 thread {median(limits, 'read_one') / 1e9:.1f}",
        ),
        (
            "int8 peak",
            f"{median(limits, 'int8') / 1e9:.0f} GOP/s",
            f"core to core {median(limits, 'core_to_core_ns'):.0f} ns",
        ),
        ("load, first module", f"{load * 1e3:.0f} ms", f"{weight_bytes / load / 1e9:.1f} GB/s, checksums verified"),
        ("load, second module", f"{median(ours, 'load_second_s') * 1e3:.1f} ms", ""),
        (
            f"prefill {PREFILL}",
            f"{PREFILL / prefill:.0f} tok/s",
            share("prefill_s", linear_operations(shape, PREFILL), "int8"),
        ),
        ("decode at depth 0", f"{1 / shallow:.1f} tok/s", share("decode_0_s", weight_bytes, "read")),
        (f"decode at depth {DEPTH}", f"{1 / deep:.1f} tok/s", share(f"decode_{DEPTH}_s", live_bytes, "read")),
        ("resident memory", f"{resident / 1e6:.0f} MB", f"{resident / pair_bytes:.2f} x (weights + caches)"),
    ]
    for dtype, results in others.items():
        if not results:
            continue
        theirs = median(results, "prefill_s")
        table.append(
            (f"transformers {dtype} prefill", f"{PREFILL / theirs:.0f} tok/s", f"ours {theirs / prefill:.1f} x")
        )
        theirs = median(results, "decode_s")
        table.append((f"transformers {dtype} decode", f"{1 / theirs:.1f} tok/s", f"ours {theirs / shallow:.1f} x"))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="0.6B")
    parser.add_argument("--quant", default="w4a8h0_ssfp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-transformers", action="store_true", help="leave out the other side")
    args = parser.parse_args()

    folder, weight_bytes = package_of(args.shape, args.quant)
    limits, ours, others = measure(args, folder)
    table = table_of(args.shape, weight_bytes, limits, ours, others)
    print(
        f"Qwen3-{args.shape} shape, {args.quant}, random weights, {limits[0]['threads']} threads, "
        f"{limits[0]['machine']}, medians of {args.rounds} rounds\n\n| what | result | against |\n|---|---|---|"
    )
    for row in table:
        print("| " + " | ".join(row) + " |")
    fresh = not RESULTS.exists()
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(["date", "machine", "shape", "quant", "what", "result", "against"])
        for row in table:
            writer.writerow([time.strftime("%Y-%m-%d"), limits[0]["machine"], args.shape, args.quant, *row])


if __name__ == "__main__":
    main()
