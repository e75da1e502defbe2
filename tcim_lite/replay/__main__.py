"""`python -m tcim_lite.replay FILE SCRIPT ...`: runs a Python program and records its calls, on any runtime.

The folder works where it is copied to, as `python -m replay FILE SCRIPT ...` beside a vendor's own package.
"""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from pathlib import Path

from .container import RecordingError
from .recorder import KEEP, recording_of


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}", description="Runs a program and records its calls."
    )
    parser.add_argument("file", metavar="FILE", help="the recording")
    parser.add_argument("script", metavar="SCRIPT", help="the program, as given to python")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER)
    parser.add_argument("--data", choices=KEEP, default="inputs", help="values to store (default: %(default)s)")
    parser.add_argument(
        "--runtime", metavar="MODULE", default="tcim_lite.runtime", help="what to record (default: %(default)s)"
    )
    args = parser.parse_args()
    sys.argv = [args.script, *args.arguments]
    sys.path.insert(0, str(Path(args.script).resolve().parent))
    try:
        with recording_of(importlib.import_module(args.runtime), args.file, data=args.data):
            runpy.run_path(args.script, run_name="__main__")
    except RecordingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
