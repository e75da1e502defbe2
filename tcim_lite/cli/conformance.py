"""`tcim-lite conformance`: judges a runtime by the API contract."""

from __future__ import annotations

import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the sub-command."""
    from ..conformance import command_line

    parser = commands.add_parser(
        "conformance",
        help="test a runtime against the API contract",
        description="Tests a runtime against the API contract, corner by corner, through its public API.",
    )
    command_line.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the suite; the exit status is command_line's."""
    from ..conformance import command_line

    return command_line.run(args)
