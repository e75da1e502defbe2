"""`tcim-lite port-check`: what a program asks of the runtime, and what is risky in it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

HELP = "which API a program uses, how it is emulated, and what is risky"
DESCRIPTION = (
    "Reads a program: Python, C++ (its includes and names), or a compiled program (its symbols). Says which calls of "
    "the API it uses and whether each is emulated exactly, chosen, an extension, or missing; and names risky patterns "
    "with their lines and fixes. Exit status 1: something is missing or risky."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", type=Path, nargs="*", help="sources, programs, or folders of sources")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--table", action="store_true", help="print the status of every call of the API as Markdown")
    parser.add_argument(
        "--run",
        metavar="ARG",
        nargs=argparse.REMAINDER,
        help="also run the first PATH, a Python script or a compiled program, with these arguments and watch its calls",
    )


def _progress() -> Callable[[int], None]:
    """Shows on a terminal how many files were looked at, if that takes longer than a second."""
    import sys
    import time

    told = time.monotonic()

    def tell(looked_at: int) -> None:
        nonlocal told
        if time.monotonic() - told > 1 and sys.stderr.isatty():
            told = time.monotonic()
            print(f"looked at {looked_at} files", file=sys.stderr)

    return tell


def run(args: argparse.Namespace) -> int:
    """Prints the report."""
    import json
    import sys

    from ..errors import ArgumentError
    from ..portcheck import check
    from ..portcheck.api import page

    if args.table:
        if args.path or args.json or args.run is not None:
            raise ArgumentError("--table prints the status of every call as Markdown; give it alone")
        print(page(), end="")
        return 0
    if not args.path:
        raise ArgumentError("give a PATH to read, or --table")
    command = None
    if args.run is not None:
        program = args.path[0]
        if program.is_dir() or program.suffix in (".cc", ".cpp", ".cxx", ".h", ".hpp"):
            raise ArgumentError(f"{program}: --run wants a Python script or a compiled program first")
        start = [sys.executable] if program.suffix == ".py" else []
        command = [*start, str(program.resolve() if not start else program), *args.run]
    report = check(args.path, command, all_to_stderr=args.json, tell=_progress())
    if args.json:
        print(json.dumps(report.as_json(), indent=1))
    else:
        for line in report.lines():
            print(line)
    return report.status
