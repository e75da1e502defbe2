"""Errors that no op makes: an input that does not hold what it was given, a run of another length, a lost output."""

from __future__ import annotations

import numpy as np

from .cut import Model, reads_of, unit_of
from .folder import Array
from .metrics import difference
from .report import Finding, Point, Report
from .side import Side, run_cut


def altered_input(report: Report, last: int) -> Finding | None:
    """The first input of steps up to `last` that holds other values on the other side than that side gave it."""
    right, other = report.right, report.other
    for step in range(last + 1):
        for name in other.steps[step].altered:
            if name in right.steps[step].altered or name not in right.steps[step].tensors:
                continue
            found = difference(right.array(step, name), other.array(step, name))
            if found is not None and not found.equal:
                return Finding(step, right.steps[step].graph, "input", name, [], "altered", False, found, 0.0)
    return None


def other_length(report: Report, step: int, model: Model) -> Finding | None:
    """The input that says how many rows are computed, if all that differs are rows that should not be there, or miss.

    An op that leaves something in such rows is no reason: the next op does not compute them. So two results in a row
    must differ.
    """
    current = report.right.steps[step].current
    if model.graph.live_rows is None or current < 1:
        return None
    values = [point for point in report.points[step] if point.kind == "value" and point.whole is not None]
    differing = [index for index, point in enumerate(values) if point.whole is not None and not point.whole.equal]
    if len(differing) < 2 or differing[1] != differing[0] + 1:
        return None
    rows = 0
    for name in (values[index].name for index in differing):
        right, other = report.right.array(step, name), report.other.array(step, name)
        rows = rows or (right.shape[-2] if right.ndim > 1 else 0)
        gathered = right.ndim > 1 and right.shape[-2] != rows  # from the last row, another one then
        if not gathered and not _differs_in_length(right, other, current):
            return None
    first = values[differing[0]].whole
    assert first is not None
    length = model.graph.values[model.graph.live_rows].name
    return Finding(step, report.right.steps[step].graph, "input", length, [], "length", False, first, 0.0)


def _differs_in_length(right: Array, other: Array, current: int) -> bool:
    if right.ndim < 2 or right.shape[-2] < current:
        return False
    rows = [np.moveaxis(side, -2, 0).reshape(side.shape[-2], -1) for side in (right, other)]
    first = int(np.flatnonzero((rows[0] != rows[1]).any(axis=1))[0])
    return not rows[0][current:].any() if first >= current else not rows[1][first:].any()


def wrong_output(side: Side, report: Report, step: int, wrong: Point, stored: set[str]) -> Finding | None:
    """The output (or tap) that is wrong while what the run computed from it is right.

    The ops that read it are run again on what the output shows. If they make something else of it than they made in the
    run, the run had other values there.
    """
    model = side.model(report.right.steps[step].graph)
    readers = [point.name for point in report.points[step] if _reads(model, point, wrong.name, stored)]
    if not readers:
        return None
    again = run_cut(side, report.other, step, range(len(model.graph.ops)), stored, stored, f"again_{step}")
    for name in readers:
        found = difference(report.other.array(step, name), again.array(0, name))
        if found is not None and not found.equal:
            assert wrong.own is not None
            graph = report.right.steps[step].graph
            return Finding(step, graph, "output", wrong.name, [], "delivered", True, wrong.own, wrong.bound)
    return None


def _reads(model: Model, point: Point, name: str, stored: set[str]) -> bool:
    """Whether a result that is right on both sides is made from the value of that name."""
    if not point.is_result or point.whole is None or not point.whole.equal or point.name == name:
        return False
    return name in reads_of(model, unit_of(model, point.name, stored), stored)
