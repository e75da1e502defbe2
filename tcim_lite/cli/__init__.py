"""The `tcim-lite` command: one file per sub-command, the work is elsewhere.

A command module says what it is (`HELP`, `DESCRIPTION`) and has ``add_arguments(parser)`` and ``run(args) -> int``. It
imports what it needs inside `run`, so that `tcim-lite --help` is quick and needs no extra.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..console import run_main
from ..errors import TcimError

COMMANDS = (
    "bench",
    "chat",
    "compile",
    "completion",
    "conformance",
    "diff",
    "dump",
    "explain",
    "generate",
    "golden",
    "inspect",
    "pack",
    "port_check",
    "record_info",
    "replay",
    "sdk_path",
    "serve",
    "smi",
    "trace_summary",
)


def make_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of the command and the sub-commands of these names."""
    parser = argparse.ArgumentParser(prog="tcim-lite", description="An open emulator of the Houmo AI M50 runtime.")
    parser.add_argument("--version", action="version", version=f"tcim-lite {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in names:
        module = importlib.import_module(f".{name}", __package__)
        command = commands.add_parser(name.replace("_", "-"), help=module.HELP, description=module.DESCRIPTION)
        command.register("type", Path, _path)
        module.add_arguments(command)
    return parser


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the sub-commands, by name."""
    found = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def _path(text: str) -> Path:
    """A path of the command line; Path itself takes "" as the current folder, as which nobody means it."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty (an unset variable?); write . for the current folder")
    return Path(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a sub-command and returns the exit status: 0, or 2 for an error of the user's."""
    words = sys.argv[1:] if argv is None else argv
    # To import all of them takes as long as a short command.
    named = [name for name in COMMANDS if [name.replace("_", "-")] == list(words[:1])]
    parser = make_parser(named or COMMANDS)
    args, rest = parser.parse_known_args(words)
    if rest == ["-"] and getattr(args, "stdin", "") is None:  # argparse takes no optional argument after an option
        args.stdin, rest = "-", []
    if rest[:1] == ["--"] and getattr(args, "run", None) is not None:  # nor `--` among those of --run
        args.run, rest = [*args.run, *rest] if args.run else rest[1:], []
    if rest:
        commands_of(parser)[args.command].error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return importlib.import_module(f".{args.command.replace('-', '_')}", __package__).run(args)
    except BrokenPipeError:  # no error of the user's; run_main ends the process
        raise
    except TcimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # its own text has a number, and the name last
        told = error if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
        print(f"error: {told}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"error: not enough memory ({error}); free some, or compile a smaller model", file=sys.stderr)
        return 2


def entry_point() -> NoReturn:
    """The installed command: `main`, which an interrupt ends with status 130."""
    run_main(main)
