"""This project's server and llama.cpp's in turn on this machine: the same shape, random weights of 4 bits, two threads.

    python benchmarks/compare_serving.py --work-dir DIR --llama-bin BIN [--size 0.6B] [--clients 1 4 8] [--rounds 3]

BIN holds llama-server and llama-quantize (benchmarks/README.md says how to build them). Clients send one request after
the other: prompts of random tokens, greedy answers of a fixed length, as streams of /v1/completions. In every round
each server runs once for each number of clients, in a process of its own, with as many slots as clients or --slots.

Before our server runs, a process of its own times `run` + `sync` of the decode graph with all slots half-way through
their answers: "of raw" is that step over the time between two pieces of an answer, in all rounds; 100 % would be a
server that costs nothing.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from compare.limits import probe
from compare.serving import ServedFiles, Server, load
from compare.shapes import SHAPES

CPUS = 2
_RAW = """
import statistics, sys, time
from tcim_lite.llm import Package
from tcim_lite.llm.engine import Slots
slots = Slots.open(Package.open(sys.argv[1]))
begin, depth = time.perf_counter(), int(sys.argv[2])
for slot in range(len(slots)):
    for start in range(0, depth, slots.chunk_length):
        slots.prefill(slot, [1 + slot] * min(slots.chunk_length, depth - start))
slots.alone_by_prefill = False
slots.decode(dict.fromkeys(range(len(slots)), 1))
decode, times = slots.stages[0].decode, []
for _ in range(40):
    begin = time.perf_counter()
    decode.run()
    decode.sync()
    times.append(time.perf_counter() - begin)
print(statistics.median(times))
"""
_LOAD = """
import sys, time
from tcim_lite.llm import Package
from tcim_lite.llm.engine import Slots
begin = time.perf_counter()
Slots.open(Package.open(sys.argv[1]))
print(time.perf_counter() - begin)
"""


def in_process(program: str, cpus: set[int], *arguments: object) -> float:
    """The number that a program prints, bound to `cpus`."""
    command = [sys.executable, "-P", "-c", program, *map(str, arguments)]
    environment = os.environ | {"TCIM_LITE_THREADS": str(len(cpus))}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cpus)
    )
    if done.returncode != 0:
        raise SystemExit(f"error: {done.stderr[-2000:]}")
    return float(done.stdout)


def measure(args: argparse.Namespace, files: ServedFiles, cpus: set[int]) -> list[dict]:
    """A row for each round, number of clients and side."""
    rows: list[dict] = []
    for round_ in range(1, args.rounds + 1):
        for clients in args.clients:
            slots = args.slots or clients
            for side in ("tcim", "llama") if round_ % 2 else ("llama", "tcim"):
                row = {"date": time.strftime("%Y-%m-%d"), "shape": args.size, "round": round_, "clients": clients}
                row |= {"side": side, "slots": slots, "raw_step_s": "", "load_s": ""}
                if side == "tcim":
                    package = files.package(slots)
                    depth = args.prompt_tokens + args.answer_tokens // 2
                    row |= {"raw_step_s": in_process(_RAW, cpus, package, depth)}
                    row |= {"load_s": in_process(_LOAD, cpus, package)}
                with Server(files, side, slots, cpus) as server:
                    load(side, server.port, 1, 1, 8, 8, seed=0)
                    lengths = (args.requests, args.prompt_tokens, args.answer_tokens)
                    result = load(side, server.port, clients, *lengths, seed=round_)
                    row |= {"ready_s": server.ready_s, "seconds": result.seconds, "tokens": result.tokens}
                row["first_s"] = statistics.median(result.first_s)
                row |= {
                    "gap_s": statistics.median(result.gaps_s),
                    "gap_p99_s": sorted(result.gaps_s)[-len(result.gaps_s) // 100],
                }
                rows.append(row | {key: probe(0, cpus)[key] for key in ("machine", "read")})
                rate = result.tokens / result.seconds
                print(f"round {round_}, {clients} clients, {side}: {rate:.1f} tok/s", file=sys.stderr)
    return rows


def table(rows: list[dict]) -> str:
    """Medians over the rounds; the ratio is the median of each round's own."""
    lines = [
        "| clients | tok/s | llama.cpp | ratio | first token ms | between tokens ms | p99 ms | of raw | ready s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for clients in dict.fromkeys(row["clients"] for row in rows):
        sides = [
            [row for row in rows if (row["clients"], row["side"]) == (clients, side)] for side in ("tcim", "llama")
        ]
        rates = [[int(row["tokens"]) / float(row["seconds"]) for row in side] for side in sides]
        ratios = [a / b for a, b in zip(*rates, strict=True)]

        def both(name: str, scale: float, sides: list = sides) -> str:
            return " / ".join(f"{statistics.median(float(row[name]) for row in side) * scale:.1f}" for side in sides)

        raw = statistics.median(float(row["raw_step_s"]) / float(row["gap_s"]) for row in sides[0])
        cells = [clients, *(f"{statistics.median(rate):.1f}" for rate in rates)]
        cells.append(f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]")
        cells += [both("first_s", 1e3), both("gap_s", 1e3), both("gap_p99_s", 1e3), f"{raw:.0%}", both("ready_s", 1)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    loads = [float(row["load_s"]) for row in rows if row["load_s"] not in ("", None)]
    ready = [float(row["ready_s"]) for row in rows if row["side"] == "tcim"]
    beside = statistics.median(a - b for a, b in zip(ready, loads, strict=True))
    lines.append(
        f"\nOur server listens {beside:.2f} s after its start, the {statistics.median(loads):.2f} s of loading aside."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work-dir", type=Path, help="model files: 0.6B takes 3 GB")
    parser.add_argument("--llama-bin", type=Path, metavar="BIN", help="folder of llama-server and llama-quantize")
    parser.add_argument("--size", choices=SHAPES, default="0.6B")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--slots", type=int, help="of both servers (default: as many as clients)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=2, help="of each client (%(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--answer-tokens", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "compare_serving.csv")
    parser.add_argument("--prepare", action="store_true", help="make the model files and stop")
    parser.add_argument("--table", type=Path, metavar="CSV", help="print the table of an earlier run and stop")
    args = parser.parse_args()
    if args.table:
        with args.table.open(newline="") as file:
            print(table(list(csv.DictReader(file))))
        return
    if args.work_dir is None or args.llama_bin is None:
        parser.error("--work-dir and --llama-bin are needed")
    files = ServedFiles(args.work_dir.resolve(), args.size, args.llama_bin.resolve())
    for slots in {args.slots or clients for clients in args.clients}:
        files.package(slots)
    files.gguf()
    if args.prepare:
        return
    rows = measure(args, files, set(sorted(os.sched_getaffinity(0))[:CPUS]))
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(table(rows))


if __name__ == "__main__":
    main()
