"""`tcim-lite diff`: where two runs of the same calls begin to differ."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .dump import add_call_arguments, one_graph, prompt_of, refuse_call_options, token_ids

if TYPE_CHECKING:
    from ..diff.report import Report
    from ..llm import Package


HELP = "find the first op where two runs differ"
DESCRIPTION = (
    "Runs two packages, or one package in two ways, on the same tokens (or two graphs on the same inputs), and names "
    "the first op of B whose result leaves its bound on right inputs. Writes that op as a model of its own with its "
    "inputs, and a page with the errors over the layers. Exit status 1: an op was found."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "right",
        metavar="A",
        help="package, .hmm or network that counts as right; or hf:DIR, a checkpoint that transformers runs in float32",
    )
    parser.add_argument("other", metavar="B", type=Path, help="package, .hmm or network to check")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, default=Path("out/diff"), help="(%(default)s)")
    add_call_arguments(parser)
    parser.add_argument("--answer", metavar="IDS", default="", help="token ids to decode before those that A chooses")
    parser.add_argument(
        "--input",
        metavar="[NAME=]PATH",
        action="append",
        default=[],
        help="for graphs: as in `tcim-lite dump`; repeatable",
    )
    for side in "ab":
        parser.add_argument(
            f"--env-{side}",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help=f"a variable of {side.upper()}'s processes, such as TCIM_LITE_DEVICE=cuda or PYTHONPATH; repeat",
        )
    parser.add_argument(
        "--bound",
        default="auto",
        choices=("auto", "exact", "rounding", "formats"),
        help="exact: no bit may differ; rounding: both round at the same places (CPU and GPU); formats: weights are "
        "quantised differently (%(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints where the runs differ."""
    from ..diff.dump import Calls
    from ..diff.folder import Dump
    from ..diff.locate import Walk
    from ..diff.output import clear_output
    from ..diff.page import write_page
    from ..diff.side import Side
    from ..errors import ArgumentError
    from ..llm import Package

    if args.right.startswith("hf:"):
        runs: list[Package | Path] = [_opened(args.other, args)]
    else:
        runs = [_opened(Path(args.right), args), _opened(args.other, args)]
    graphs = sum(isinstance(each, Path) for each in runs)
    if graphs not in (0, 2) or (graphs == 0) != (not args.input):
        raise ArgumentError("give two packages and --prompt or --tokens, or two .hmm files or networks and --input")
    if graphs:
        refuse_call_options(args, [Path(args.right), args.other])
    if args.recording is not None and args.right.startswith("hf:"):
        raise ArgumentError("transformers takes --prompt or --tokens, not --recording")
    calls: Calls | Path | list[str] = args.input
    last = runs[-1]
    if args.recording is not None:
        calls = args.recording
    elif isinstance(last, Package):
        try:
            prompt = prompt_of(args, last.tokenizer_folder)
        except (ValueError, ImportError) as error:
            raise ArgumentError(str(error)) from None
        calls = Calls(prompt, token_ids(args.answer, "--answer"), args.steps)
    clear_output(args.output, _read(args))
    environments = [_environment(args.env_a, "--env-a"), _environment(args.env_b, "--env-b")]
    right: Side | Dump
    if args.right.startswith("hf:"):
        from ..diff.oracle import dump_checkpoint
        from ..models.families import FAMILIES

        assert isinstance(last, Package)
        assert isinstance(calls, Calls)
        others = {family.model_type for family in FAMILIES.values() if family.other_values}
        right = dump_checkpoint(Path(args.right.removeprefix("hf:")), last, calls, args.output / "a", others)
    else:
        right = Side(runs[0], environments[0], args.output / "a")
    report = Walk(right, Side(last, environments[1], args.output / "b"), calls, args.bound).run()
    for line in lines_of(report):
        print(line)
    page = args.output / "index.html"
    write_page(page, report, str(args.right), str(args.other))
    print(f"page: {page}")
    sys.stdout.flush()
    return 0 if report.finding is None else 1


def _read(args: argparse.Namespace) -> list[Path]:
    given = [Path(args.right.removeprefix("hf:")), args.other, *(Path(text.rpartition("=")[2]) for text in args.input)]
    return given if args.recording is None else [*given, args.recording]


def _opened(path: Path, args: argparse.Namespace) -> Package | Path:
    from ..errors import ArgumentError
    from ..llm import Package

    if (graph := one_graph(path, args)).suffix == ".hmm":
        return graph
    try:
        return Package.open(path, args.name)
    except ValueError as error:
        raise ArgumentError(str(error)) from None


def _environment(given: list[str], option: str) -> dict[str, str]:
    from ..errors import ArgumentError

    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ArgumentError(f"{option} {text!r:.200}: expected NAME=VALUE")
        found[name] = value
    return found


def lines_of(report: Report) -> list[str]:
    """What the command prints about a comparison."""
    lines = [f"bound: {report.mode}"]
    for index, points in enumerate(report.points):
        step = report.right.steps[index]
        compared = [point for point in points if point.is_result and point.whole is not None]
        equal = sum(point.whole.equal for point in compared if point.whole is not None)
        worst = max(compared, key=lambda point: point.whole.relative if point.whole else 0.0)
        assert worst.whole is not None
        lines.append(
            f"step {index}  {step.graph} {step.valid}+{step.current}: {equal} of {len(compared)} tensors equal"
            + ("" if worst.whole.equal else f", largest error {worst.whole.relative:.2e} in {worst.name}")
        )
    if report.inputs:
        lines.append(f"the calls differ, not the ops: {', '.join(report.inputs[:4])}")
    found = report.finding
    if found is None:
        near = [point for points in report.points for point in points if point.own is not None and point.bound]
        closest = max(near, key=lambda point: point.own.relative / point.bound if point.own else 0.0, default=None)
        if closest is not None and closest.own is not None:
            share = min(closest.own.relative / closest.bound, 1.0)
            lines.append(
                f"nearest to its bound: {closest.name}, step {closest.step}: {share:.0%} of {closest.bound:.2g}"
            )
        return [*lines, "no op leaves its bound"]
    lines.append(f"first beyond its bound: {found.described}, step {found.step} ({found.graph})")
    own = found.own
    lines.append(
        f"  error {own.relative:.3g} (bound {found.bound:.3g}), {own.differing} of {own.elements} elements, at most "
        f"{own.steps:.4g} steps of the format, cosine {own.cosine:.6f}; {found.where}"
    )
    if found.cut is not None:
        lines.append(f"  to repeat: tcim-lite dump {found.cut}/cut.hmm --input {found.cut}/inputs -o OUT")
    return lines
