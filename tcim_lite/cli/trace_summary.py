"""`tcim-lite trace-summary`: the top costs of a trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..trace_summary import Summary

_TITLES = {
    "call": "calls, host time",
    "run": "runs, host time",
    "layer": "layers, host time",
    "op": "ops, host time",
    "modelled": "the chip, modelled time",
}


HELP = "print the top costs of a trace of calls"
DESCRIPTION = "Adds up a trace that TCIM_LITE_LAYERS=trace:FILE.json wrote (docs/trace.md)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--top", type=int, default=8, metavar="N", help="lines of each part (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON: seconds, bytes, everything")


def run(args: argparse.Namespace) -> int:
    """Prints the tables."""
    import dataclasses
    import json

    from ..errors import ArgumentError
    from ..trace_summary import summarize

    if args.top < 1:
        raise ArgumentError(f"--top {args.top}: expected 1 or more")
    summary = summarize(args.file)
    print(json.dumps(dataclasses.asdict(summary), indent=2) if args.json else _text(summary, args.top))
    return 0


def _text(summary: Summary, top: int) -> str:
    lines = [f"{summary.seconds:.3f} s, {len(summary.processes)} process(es)"]
    lines += [f"  {pid}  {_printable(name)}" for pid, name in sorted(summary.processes.items())]
    for section, costs in summary.costs.items():
        if not costs:
            continue
        lines += ["", f"{_TITLES[section]:44}{'count':>8}{'total ms':>12}{'mean us':>11}{'max us':>11}"]
        for cost in costs[:top]:
            name = _printable(cost.name) + (f" ({cost.errors} errors)" if cost.errors else "")
            mean = cost.seconds / cost.count * 1e6
            lines.append(f"  {name:42}{cost.count:8}{cost.seconds * 1e3:12.3f}{mean:11.1f}{cost.longest * 1e6:11.1f}")
        if len(costs) > top:
            rest = sum(cost.seconds for cost in costs[top:])
            lines.append(f"  {f'and {len(costs) - top} more':50}{rest * 1e3:12.3f}")
    most = [f"{rows} cache rows live, {_printable(name)}" for name, rows in _largest(summary.cache_rows, top)]
    most += [f"{size / (1 << 20):.1f} MB in use on {name}" for name, size in _largest(summary.memory, top)]
    return "\n".join([*lines, *(["", "at most"] if most else []), *(f"  {line}" for line in most)])


def _largest(figures: dict[str, int], top: int) -> list[tuple[str, int]]:
    return sorted(figures.items(), key=lambda item: -item[1])[:top]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
