"""What one sees while it runs."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any, TextIO

from ..results import BAD, NOT_RUN, OUTCOMES, PASSED, UNEXPECTED, Result, Run

WIDTH = 110
NARROW = 78  # what is printed over and over must not wrap
_CLEAR = "\r\033[K"


class Screen:
    """Prints a line per case that did not pass, and a summary; at a terminal also how far the run is."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._count = self._done = 0
        self._begin = time.monotonic()

    def begin(self, args: argparse.Namespace, environment: dict[str, Any], count: int) -> None:
        """Before the first case."""
        version = " · ".join(environment["version"].splitlines())
        self._print(f"{args.runtime}: {version}, {environment['devices']} device(s), Python {environment['python']}")
        self._print(f"{count} cases" + (", strict" if args.strict else ""))
        self._count, self._begin = count, time.monotonic()

    def result(self, result: Result) -> None:
        """After a case."""
        self._done += 1
        if result.outcome in BAD or result.outcome == UNEXPECTED:
            self._print(f"{result.outcome.upper():8} {result.id}")
            lines = result.detail.strip().splitlines()
            for line in lines[-12:] if result.outcome in BAD else lines[:1]:
                self._print(f"    {line}")
        if self._is_terminal:
            spent = time.monotonic() - self._begin
            text = f"{self._done} of {self._count} cases, {spent:.0f} s: {result.id}"
            print(f"{_CLEAR}{text[:NARROW]}", end="", file=self._out, flush=True)

    def end(self, run: Run) -> None:
        """After the last case."""
        reasons = Counter(result.detail for result in run.results if result.outcome == NOT_RUN)
        for reason, count in reasons.most_common():
            self._print(f"not run  {count:4} {reason}"[: WIDTH + 60])
        for id_ in run.missing:
            self._print(f"MISSING  {id_} (must pass, but the suite has no such case)")
        corners = {result.corner for result in run.results if result.corner and result.outcome == PASSED}
        counts = run.counts()
        parts = [f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]]
        self._print(
            f"{', '.join(parts) or 'no case'}; {len(corners)} of 32 corners have a passing case; {run.seconds:.1f} s"
        )
        self._print(f"{run.runtime}: {run.verdict}")

    def _print(self, text: str) -> None:
        print(f"{_CLEAR if self._is_terminal else ''}{text}", file=self._out, flush=True)
