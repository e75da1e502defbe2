"""`tcim-lite replay`: runs the calls of a recording again."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run a recording of calls again and compare the results"
DESCRIPTION = (
    "Runs the calls of a recording (TCIM_LITE_LAYERS=record:FILE) again and reports the first call whose result "
    "differs. The exit status is 0 if none does, 1 if one does, 2 if it cannot be replayed or there is none to compare."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument(
        "--runtime",
        metavar="MODULE",
        default="tcim_lite.runtime",
        help="the Python module to call (default: %(default)s)",
    )
    parser.add_argument(
        "--package", metavar="DIR", type=Path, help="where the models are (default: as recorded, else beside FILE)"
    )
    parser.add_argument(
        "--tolerance",
        metavar="BOUNDS",
        help="what tensors may differ by: NUMBER times the largest magnitude, or abs=NUMBER,rel=NUMBER,cosine=NUMBER "
        "(default: nothing)",
    )
    parser.add_argument("--all", action="store_true", help="go on after the first difference and list all")


def run(args: argparse.Namespace) -> int:
    """Replays, and prints what differs."""
    from ..errors import ArgumentError
    from ..replay import Recording, RecordingError, Tolerance, replay

    try:
        tolerance = Tolerance.parse(args.tolerance) if args.tolerance else Tolerance()
        done = replay(Recording(args.file), args.runtime, package=args.package, tolerance=tolerance, stop=not args.all)
    except (RecordingError, ValueError) as error:
        raise ArgumentError(str(error)) from None
    except ImportError as error:
        raise ArgumentError(f"--runtime {args.runtime}: it cannot be imported: {error}") from None
    for note in done.notes:
        print(f"note: {note}")
    if done.skipped:
        print("not replayed: " + ", ".join(f"{name} ({count})" for name, count in done.skipped.most_common()))
    for mismatch in done.mismatches:
        print(f"DIFFERS at {mismatch}")
    if done.mismatches:
        return 1
    if not done.compared:
        raise ArgumentError(
            f"{args.file}: calls made: {done.calls}, and none of them has a result to compare, so this says nothing "
            "of the runtime; record a program that reads its outputs, to its end"
        )
    print(f"{done.calls} calls replayed, {done.compared} results compared (tolerance {tolerance}): none differs")
    return 0
