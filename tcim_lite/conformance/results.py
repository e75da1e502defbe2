"""What became of a case, and of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

PASSED, FAILED, CRASHED, HUNG, FLAKY = "passed", "failed", "crashed", "hung", "flaky"
NOT_RUN, WAIVED, UNEXPECTED = "not run", "waived", "unexpected pass"
OUTCOMES = (PASSED, FAILED, CRASHED, HUNG, FLAKY, WAIVED, UNEXPECTED, NOT_RUN)
BAD = {FAILED, CRASHED, HUNG, FLAKY}


@dataclass
class Result:
    """One case. `detail` is why it is not `passed`; `measured` holds numbers that it compared with a bound."""

    id: str
    title: str
    tier: str
    corner: int | None
    outcome: str
    seconds: float = 0.0
    detail: str = ""
    measured: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Run:
    """A run of the suite, as it stands in report.json."""

    runtime: str
    tier: str
    strict: bool
    environment: dict[str, Any]  # what the probe of the runtime said: versions, machine
    results: list[Result]
    missing: list[str]  # must-pass cases of this tier that the suite no longer has
    must_pass: list[str]
    seconds: float = 0.0

    def counts(self) -> Counter[str]:
        """How many results have each outcome."""
        return Counter(result.outcome for result in self.results)

    @property
    def executed(self) -> int:
        """Cases that ran."""
        return len(self.results) - self.counts()[NOT_RUN]

    @property
    def open_cases(self) -> list[Result]:
        """Must-pass cases that were not run: without them nobody knows."""
        return [result for result in self.results if result.outcome == NOT_RUN and result.id in self.must_pass]

    @property
    def bad(self) -> list[Result]:
        """Cases that speak against the runtime."""
        return [result for result in self.results if result.outcome in BAD]

    @property
    def verdict(self) -> str:
        """One line."""
        if not self.executed:
            return "nothing was executed"
        if self.bad or self.missing:
            return "does not conform"
        if self.open_cases:
            return f"conforms as far as it was tested: {len(self.open_cases)} must-pass cases were not run"
        return "conforms"

    def as_json(self) -> dict[str, Any]:
        """Everything, for report.json."""
        return {**asdict(self), "counts": dict(self.counts()), "executed": self.executed, "verdict": self.verdict}
