"""`tcim-lite record-info`: what a recording holds."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "show what a recording of calls holds, drop its data, or pack it"
DESCRIPTION = "Shows what a recording (TCIM_LITE_LAYERS=record:FILE) holds."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--calls", action="store_true", help="list every call and every round of a run")
    copies = parser.add_mutually_exclusive_group()
    copies.add_argument("--pack", metavar="OUT", type=Path, help="write a copy that is packed with zstd")
    copies.add_argument(
        "--redact",
        metavar="OUT",
        type=Path,
        help="write a copy without values, folders, texts of errors and command line",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the overview, or writes the copy."""
    from ..errors import ArgumentError
    from ..replay import Recording, RecordingError
    from ..replay.redact import pack, redact
    from ..replay.show import call_line, overview

    try:
        recording = Recording(args.file)
        for target, write in ((args.redact, redact), (args.pack, pack)):
            if target is not None:
                write(recording, target)
                recording = Recording(target)
        for line in overview(recording):
            print(line)
        if args.calls:
            print()
            for index, record in enumerate(recording.records):
                print(call_line(index, record))
    except RecordingError as error:
        raise ArgumentError(str(error)) from None
    return 0
