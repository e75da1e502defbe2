"""This project and the engines people would otherwise use, in turn on this machine, beside its measured limits.

    python benchmarks/compare_cpu.py --work-dir DIR --setup                  # once: the engines, minutes
    python benchmarks/compare_cpu.py --work-dir DIR [--sizes 0.6B 1.7B] [--engines tcim llama-Q4_0] [--rounds 3]
    python benchmarks/compare_cpu.py --tables RESULTS.csv                    # the tables again

Same shapes, the same random weights, two threads on the same processors. In every round each side runs once, in a
process of its own, with the machine's limits measured before and after. Files are made when missing and, with several
sizes, deleted when a size is done: the disk holds one. benchmarks/README.md says how to read the results.
"""

import argparse
import csv
import os
import subprocess
import sys
import time
from pathlib import Path

from compare.environments import is_ready, python_of, set_up
from compare.limits import probe
from compare.report import tables
from compare.shapes import OTHERS, SHAPES
from compare.sides import CPUS, SIDES, Files, run_side, sides_of

RESULTS = Path(__file__).parent / "results"


def measure(shape: str, args: argparse.Namespace, cpus: set[int]) -> list[dict]:
    """A row for each side and round."""
    files, rows = Files(args.work_dir, shape), []
    sides = [side for side in sides_of(shape, args.engines) if _usable(args.work_dir, side)]
    sides = files.make(sides)
    for round_ in range(1, args.rounds + 1):
        for side in list(sides):
            before = probe(files.token_bytes(side), cpus)
            if rows:
                _add_after(rows[-1], before)
            try:
                result = run_side(args.work_dir, files, side, cpus)
            except RuntimeError as error:
                print(f"{side.name} is left out from here on: {error}", file=sys.stderr)
                sides.remove(side)
                continue
            row = {"date": time.strftime("%Y-%m-%d"), "shape": shape, "side": side.name, "engine": side.engine}
            row |= {"arithmetic": side.arithmetic, "round": round_, "token_bytes": files.token_bytes(side)}
            rows.append(row | result | before)
            print(f"{shape} round {round_} {side.name}: decode {1 / result['decode_0_s']:.1f} tok/s", file=sys.stderr)
    if rows:
        _add_after(rows[-1], probe(0, cpus))
    return rows


def _usable(work: Path, side) -> bool:
    if is_ready(work, side.engine):
        return True
    print(f"{side.name} is left out: {side.engine} is not set up in {work}; run with --setup", file=sys.stderr)
    return False


def _add_after(row: dict, limits: dict) -> None:
    row["after_read"], row["after_core_to_core_ns"] = limits["read"], limits["core_to_core_ns"]


def read_rows(path: Path) -> list[dict]:
    """The CSV's rows, numbers as numbers."""
    words = {"date", "shape", "side", "engine", "arithmetic", "machine", "int8_instruction"}
    with path.open(newline="") as file:
        return [
            {key: cell if key in words else float(cell) for key, cell in row.items()} for row in csv.DictReader(file)
        ]


def write_rows(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=[*SHAPES, *OTHERS], default=["0.6B"])
    parser.add_argument("--engines", nargs="+", help=f"sides or engines; all: {', '.join(side.name for side in SIDES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work-dir", type=Path, help="environments and model files: up to 45 GB of disk")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "compare_cpu.csv", help="the CSV; .png and .svg beside it"
    )
    parser.add_argument("--setup", action="store_true", help="install the engines and stop")
    parser.add_argument("--prepare", action="store_true", help="make the model files and stop")
    parser.add_argument("--quick", action="store_true", help="a few runs a side: to see that all work, not to compare")
    parser.add_argument("--keep", action="store_true", help="keep model files even with several sizes")
    parser.add_argument("--tables", type=Path, metavar="CSV", help="print the tables of an earlier run and stop")
    args = parser.parse_args()
    if args.tables:
        print(tables(read_rows(args.tables)))
        return
    if args.work_dir is None:
        parser.error("--work-dir is needed")
    known = {side.name for side in SIDES} | {side.name.split("-")[0] for side in SIDES}
    if unknown := set(args.engines or ()) - known:
        parser.error(f"--engines {' '.join(sorted(unknown))}: expected some of {', '.join(sorted(known))}")
    args.work_dir = args.work_dir.resolve()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    if args.setup:
        engines = {side.engine for side in sides_of("0.6B", args.engines)} - {"tcim"}
        for engine in [*sorted(engines), "report"]:
            set_up(args.work_dir, engine)
        return

    if args.quick:
        os.environ["COMPARE_QUICK"] = "1"
    cpus = set(sorted(os.sched_getaffinity(0))[:CPUS])
    rows: list[dict] = []
    for shape in args.sizes:
        files = Files(args.work_dir, shape)
        if args.prepare:
            files.make([side for side in sides_of(shape, args.engines) if _usable(args.work_dir, side)])
            continue
        rows += measure(shape, args, cpus)
        if len(args.sizes) > 1 and not args.keep:
            files.delete()
        if rows:
            write_rows(args.out, rows)  # after every size: what is measured is kept
    if not rows:
        return
    print(tables(rows))
    if is_ready(args.work_dir, "report"):
        pictures = [str(args.out.with_suffix(suffix)) for suffix in (".png", ".svg")]
        picture = Path(__file__).parent / "compare" / "picture.py"
        subprocess.run([python_of(args.work_dir, "report"), picture, args.out, *pictures], check=True)


if __name__ == "__main__":
    main()
