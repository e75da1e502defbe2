"""`tcim-lite conformance`: judges a runtime by the API contract."""

from __future__ import annotations

import argparse

HELP = "test a runtime against the API contract"
DESCRIPTION = "Tests a runtime against the API contract, corner by corner, through its public API."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..conformance import command_line

    command_line.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the suite; the exit status is command_line's."""
    from ..conformance import command_line

    return command_line.run(args)
