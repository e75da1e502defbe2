"""What a comparison of two runs found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .folder import Dump
from .metrics import Difference

_STEP = 1.0  # of a format: what an op may round, also where numbers are so small that its relative error says little


@dataclass(frozen=True, slots=True)
class Point:
    """A tensor of a step on both sides.

    Attributes:
        step: Of the run.
        name: The value's name.
        kind: As in `Step.tensors`.
        whole: The difference of the two runs; None where one side lacks it or the shapes differ.
        own: The difference that the ops alone make, on inputs that are right; None where it was not looked at.
        bound: What `own.relative` may be.
    """

    step: int
    name: str
    kind: str
    whole: Difference | None
    own: Difference | None = None
    bound: float = 0.0

    @property
    def is_result(self) -> bool:
        """Whether the graph made it, and did not read it."""
        return self.kind in ("output", "value", "cache")

    @property
    def wrong(self) -> bool:
        """Whether the ops that make the value leave their bound."""
        return self.own is not None and beyond(self.own, self.bound)


@dataclass(frozen=True, slots=True)
class Finding:
    """The first op that is wrong.

    Attributes:
        step: Of the run.
        graph: Of that step.
        op: Kind of the op; of several, all kinds; "input" or "output" where no op is wrong.
        name: Of the op's result, or of the input or output.
        ops: Indices in the graph; none for an input or output.
        how: "" for one op. Why `ops` has several: "fused", if each is right by itself and the error is there only while
            they are one step; "unknown", if the right side does not show the values between them. "altered": the input
            holds other values than it was given. "length": the run took another number of rows than the input says.
            "delivered": what the run computed is right, and what it gave out is not.
        alone: The error is there when the ops run alone on inputs that are right; otherwise the runs before count.
        own: What the ops make of inputs that are right, or, if not `alone`, the difference of the runs.
        bound: Of `own.relative`.
        cut: A folder with the smallest model, `cut.hmm`, that shows it, its inputs and `expected.npy`; None if no
            small one does.
    """

    step: int
    graph: str
    op: str
    name: str
    ops: Sequence[int]
    how: str
    alone: bool
    own: Difference
    bound: float
    cut: Path | None = None

    @property
    def described(self) -> str:
        """The op, or the ops and why they are several, or what is wrong with the input or output."""
        name = self.name
        told = {
            "": f"the op {self.op} that makes {name}",
            "fused": f"the fused step {self.op}, each op of which is right by itself, that makes {name}",
            "unknown": f"one of the ops {self.op}, between which A shows no values, that makes {name}",
            "altered": f"the input {name}: B does not hold what it was given",
            "length": f"the input {name}: B computes other rows than it says",
            "delivered": f"the output {name}: B computes it right and gives out something else",
        }
        return told[self.how]

    @property
    def where(self) -> str:
        """Under which circumstances the difference is there."""
        if not self.ops:
            return "in the run"
        return "on right inputs" if self.alone else "in the run; alone it is right, so earlier calls count"


@dataclass
class Report:
    """Of two runs.

    Attributes:
        mode: Of `bounds.bound`.
        right: The dump that counts as right.
        other: The dump that is compared.
        points: All tensors compared, by step, in the order of execution.
        finding: The first op that is wrong; None if all are within their bounds.
        inputs: Names of graph inputs that differ: then the calls do, not the ops.
    """

    mode: str
    right: Dump
    other: Dump
    points: list[list[Point]] = field(default_factory=list)
    finding: Finding | None = None
    inputs: list[str] = field(default_factory=list)


def beyond(found: Difference, limit: float) -> bool:
    """Whether a difference is more than a relative error allows and, where one is allowed, more than a step."""
    return not found.equal and not found.relative <= limit and not (limit > 0 and found.steps <= _STEP)
