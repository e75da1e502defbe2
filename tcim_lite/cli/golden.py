"""`tcim-lite golden`: a package against golden files, by the vendor's rule."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "check a package against golden files"
DESCRIPTION = (
    "Runs a package on the inputs of golden files and compares its outputs with theirs. An output passes if it is "
    "equal, or if its cosine reaches the limit. A missing file is a failure. Exits with 1 if any fails."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="DIR|FILE.hmm", type=Path, help="a package folder, or one graph")
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        help="has hmquant_<graph>_<tensor>_input.npy and _output.npy, or step_0, step_1, ... with them",
    )
    parser.add_argument(
        "--cosine",
        type=float,
        default=0.98,
        metavar="LIMIT",
        help="the lowest cosine that passes (%(default)s, the vendor's for language models; 0.999 for networks)",
    )
    parser.add_argument(
        "--graph",
        action="append",
        default=[],
        metavar="NAME",
        help="check only this .hmm, named without suffix; repeatable",
    )


def run(args: argparse.Namespace) -> int:
    """Prints a line for each output; status 1 if one fails."""
    from ..diff.golden import check
    from ..errors import ArgumentError

    if not -1 <= args.cosine <= 1:
        raise ArgumentError(f"--cosine {args.cosine}: expected -1 to 1")
    verdicts = check(args.package, args.folder, args.cosine, args.graph)
    for verdict in verdicts:
        where = " ".join(filter(None, (verdict.step, verdict.graph, verdict.tensor)))
        cosine = "" if verdict.cosine is None else f"  {verdict.cosine:.7f}"
        print(f"{'pass' if verdict.passed else 'FAIL'}  {where}{cosine}{verdict.reason and '  ' + verdict.reason}")
    failed = sum(not verdict.passed for verdict in verdicts)
    print(f"{len(verdicts) - failed} pass, {failed} fail, limit {args.cosine}")
    return 1 if failed else 0
