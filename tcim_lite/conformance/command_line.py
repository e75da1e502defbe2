"""The command: `tcim-lite conformance`, `python -m tcim_lite.conformance`, `python FOLDER`."""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import stress, under_test
from .expectations import api_version, must_pass, waivers
from .models import ROLES, SHIPPED, Models
from .registry import TIERS, all_cases, selected
from .reports import terminal, write_all
from .results import Run
from .runner import Runner, Settings, UnusableRuntimeError

TOLERATED = Path(__file__).parent / "tolerated.txt"
OK, FAILURES, USAGE, NOTHING, INTERRUPTED = 0, 1, 2, 3, 130
EXITS = """exit status: 0 every executed case passed or is waived; 1 a case failed, crashed, hung or is flaky, or, with
--complete, a must-pass case was not run; 2 wrong arguments, or a runtime that cannot be used; 3 no case was executed;
130 interrupted"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.epilog = EXITS
    options: list[tuple[str, str, dict[str, Any]]] = [
        ("tier", "which cases; full runs quick's too (default: quick)", {"choices": TIERS, "default": "quick"}),
        ("only", "cases of any tier whose id or title has this, e.g. C-07", {"action": "append", "default": []}),
        ("runtime", "the module under test (default: %(default)s)", {"default": under_test.name()}),
        ("models", "a folder with models.json (default: the suite's own, for tcim_lite)", {"default": SHIPPED}),
        ("sdk", "folder with include/ and lib/ of the C++ API (default: beside the runtime)", {"type": Path}),
        (
            "strict",
            "set TCIM_LITE_STRICT=error: a finding fails a case that tolerated.txt does not waive",
            {"action": "store_true"},
        ),
        ("waivers", "file with lines of `case id: reason`: these may fail", {"type": Path}),
        ("complete", "fail if a must-pass case was not run", {"action": "store_true"}),
        ("report", "write index.html, report.json and junit.xml into this folder", {"type": Path}),
        ("jobs", "processes at a time (default: the CPUs, at most 4; 1 for hardware)", {"type": int}),
        ("patience", "factor on every time limit", {"type": float, "default": 1.0}),
        ("seconds", "how long each case of the stress tier goes on (default: each has its own)", {"type": float}),
        ("seed", "of the stress tier's random cases; a failure names its own (default: random)", {"type": int}),
        ("list", "print the cases' ids and run none", {"action": "store_true"}),
        ("list-models", "print the roles of models.json and run none", {"action": "store_true"}),
    ]
    metavars = {"only": "WORD", "runtime": "MODULE", "models": "DIR", "sdk": "PREFIX", "waivers": "FILE"}
    metavars |= {"report": "DIR", "jobs": "N", "patience": "FACTOR", "seconds": "N", "seed": "N"}
    for name, text, keywords in options:
        extra: dict[str, Any] = {"metavar": metavars[name]} if name in metavars else {}
        parser.add_argument(f"--{name}", help=text, **keywords, **extra)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="conformance", description="Judges a runtime by the API contract.")
    add_arguments(parser)
    args = parser.parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":  # a version may have any character
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return run(args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def run(args: argparse.Namespace) -> int:
    """Runs the suite; `args` are those of add_arguments. KeyboardInterrupt passes through."""
    for variable, value in ((stress.SECONDS, args.seconds), (stress.SEED, args.seed)):
        if value is not None:
            os.environ[variable] = str(value)  # read when the cases are imported, here and in the children
    every = all_cases()
    if args.list_models:
        print("\n".join(f"{role}: {text}" for role, text in ROLES.items()))
        return OK
    cases = selected(every, args.tier, args.only)
    if args.list:
        print("\n".join(case.id for case in cases))
        return OK
    begin = time.perf_counter()
    screen = terminal.Screen(sys.stdout)
    try:
        if args.sdk is not None and not (args.sdk / "include").is_dir():
            raise ValueError(f"--sdk {args.sdk}: expected a folder with include/ and lib/")
        for name in ("jobs", "patience", "seconds"):
            value = getattr(args, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"--{name} {value}: expected a number above 0")
        if args.report:
            args.report.mkdir(parents=True, exist_ok=True)  # what cannot be a folder fails here, not after the run
        files = [TOLERATED] if args.strict else []
        files += [args.waivers] if args.waivers else []
        waived: dict[str, str] = {}
        for file in files:
            waived |= waivers(file, [case.id for case in every])
        models = Models(Path(args.models)).folder
        settings = Settings(args.runtime, models, args.sdk and args.sdk.resolve(), args.strict, 1, args.patience)
        runner = Runner(settings, screen.result)
        environment = runner.probe()
        list_of_version = must_pass(api_version(environment["version"]), [case.id for case in every])
    except OSError as error:
        print(f"error: {error if error.filename is None else f'{error.filename}: {error.strerror}'}", file=sys.stderr)
        return USAGE
    except (ValueError, UnusableRuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    settings.jobs = args.jobs or (min(4, len(os.sched_getaffinity(0))) if environment["emulator"] else 1)
    screen.begin(args, environment, len(cases))
    results = runner.run(cases, waived)
    by_id = {case.id: case for case in every}
    found = Run(
        runtime=args.runtime,
        tier="selection" if args.only else args.tier,
        strict=args.strict,
        environment=environment,
        results=results,
        missing=[id_ for id_ in list_of_version if id_ not in by_id],
        must_pass=[case.id for case in cases if case.id in set(list_of_version)],
        seconds=time.perf_counter() - begin,
    )
    screen.end(found)
    if args.report:
        try:
            write_all(found, args.report)
        except OSError as error:
            print(f"error: the report could not be written: {error}", file=sys.stderr)
            return USAGE
        print(f"report: {args.report / 'index.html'}")
    return status_of(found, args.complete)


def status_of(found: Run, complete: bool) -> int:
    """The exit status of a run."""
    if found.executed == 0:
        return NOTHING
    return FAILURES if found.bad or found.missing or (complete and found.open_cases) else OK
