"""Walks two runs of the same calls step by step and op by op to the first op that is wrong.

First the runs are compared as they are: values that a run stores, and cache rows. Then the graph of the other side is
cut at those values, so that every fused step reads what is right, whatever went wrong before it: its error is its own.
The first fused step beyond its bound is cut again, op by op.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import ArgumentError
from ..llm.ports import is_lora
from .around import altered_input, other_length, wrong_output
from .bounds import bound, mode_between
from .cut import Model, cut, names_of, reads_of, unit_of, write_cut
from .dump import Calls
from .folder import Dump
from .metrics import Difference, difference
from .report import Finding, Point, Report, beyond
from .side import Side, run_cut, write_inputs

STORED = "@stored"


class Walk:
    """Compares two sides.

    Args:
        right: What counts as right: a side, which is run as often as needed, or a dump with all values (an oracle's).
        other: The side to look into.
        calls: Of both runs: tokens, a recording, or for graphs the values of --input.
        mode: Of `bounds.bound`; "auto" for what the sides allow.
        examine: Steps whose ops are run by themselves where none is wrong before; bounds apply to those alone.

    Raises:
        ArgumentError: The sides make different steps of the calls.
    """

    def __init__(
        self, right: Side | Dump, other: Side, calls: Calls | Path | Sequence[str], mode: str = "auto", examine: int = 3
    ) -> None:
        """Runs both sides."""
        self._right, self._other = right, other
        dumped = right if isinstance(right, Dump) else right.dump("run", calls, [STORED])
        # The other side is fed the tokens that the right one chose.
        self._calls = Calls(dumped.source["prompt"], dumped.source["answer"]) if isinstance(calls, Calls) else calls
        self._examine = examine
        self._inside: dict[int, Dump] = {}
        theirs = None if isinstance(right, Dump) else right.model("decode")
        device = "cpu" if isinstance(right, Dump) else right.device
        chosen = mode if mode != "auto" else mode_between(theirs, other.model("decode"), device, other.device)
        self.report = Report(chosen, dumped, other.dump("run", self._calls, [STORED]))
        _check_steps(dumped, self.report.other)

    def run(self) -> Report:
        """Compares, then locates."""
        report = self.report
        for step in range(len(report.right.steps)):
            report.points.append(self._compare(step))
        report.inputs = [
            f"step {point.step} {point.name}" for points in report.points for point in points if _is_other_input(point)
        ]
        if report.mode == "exact":
            steps = [step for step, points in enumerate(report.points) if any(map(_differs, points))][:1]
        else:
            steps = _first_of_each_graph(report.right)[: self._examine]
        report.finding = altered_input(report, steps[0] if report.mode == "exact" and steps else len(report.points) - 1)
        for step in steps if report.finding is None else ():
            self._examine_step(step)
            if report.finding is not None:
                break
        return report

    def _compare(self, step: int) -> list[Point]:
        right, other = self.report.right, self.report.other
        loras = [{name for name in dump.steps[step].tensors if is_lora(name)} for dump in (right, other)]
        if name := next(iter(sorted(loras[0] ^ loras[1])), None):  # graphs with a LoRA also compute rows of padding
            raise ArgumentError(f"only one package has the input {name} of a LoRA; compile both with the same --lora")
        points = []
        for name, (kind, _) in other.steps[step].tensors.items():
            if name not in right.steps[step].tensors:
                continue
            ours, theirs = right.array(step, name), other.array(step, name)
            points.append(Point(step, name, kind, difference(ours, theirs)))
        return points

    def _examine_step(self, step: int) -> None:
        """Runs every fused step of the graph on what is right, and looks into the first that is wrong."""
        report, model = self.report, self._other.model(self.report.right.steps[step].graph)
        points = [point for point in report.points[step] if point.is_result]
        stored = {point.name for point in points}
        alone = self._cut_run(step, range(len(model.graph.ops)), stored, stored, f"apart_{step}")
        by_name = {}
        for point in points:
            ops = unit_of(model, point.name, stored)
            own = difference(report.right.array(step, point.name), alone.array(0, point.name))
            by_name[point.name] = replace(point, own=own, bound=bound(report.mode, self._theirs(step), model, ops))
        report.points[step] = [by_name.get(point.name, point) for point in report.points[step]]
        wrong = next((point for point in by_name.values() if point.wrong), None)
        exact = report.mode == "exact"
        if exact and (found := other_length(report, step, model)) is not None:
            report.finding = found
        elif wrong is not None:
            odd = wrong_output(self._other, report, step, wrong, stored) if exact else None
            report.finding = odd or self._look_inside(step, wrong, stored)
        elif exact and not any(map(_is_other_input, report.points[step])):
            # Nothing is wrong alone: a run depends on more than its inputs. Then the first difference counts.
            first = next((point for point in by_name.values() if _differs(point)), None)
            if first is not None:
                report.finding = self._look_into_runs(step, first, stored)

    def _look_inside(self, step: int, wrong: Point, stored: set[str]) -> Finding:
        """The op of a fused step that is wrong by itself, or the fused step."""
        model = self._other.model(self.report.right.steps[step].graph)
        ops = unit_of(model, wrong.name, stored)
        right = self._values_inside(step, model, ops)
        names = [name for name in names_of(model, ops) if name in right.steps[step].tensors]
        known = stored | set(names)
        alone = run_cut(self._other, right, step, ops, known, names, f"inside_{step}") if len(ops) > 1 else None
        for name in names if alone is not None else ():
            own = difference(right.array(step, name), alone.array(0, name)) if alone is not None else None
            limit = bound(self.report.mode, self._theirs(step), model, unit_of(model, name, known))
            if own is not None and beyond(own, limit):
                return self._finding(step, name, unit_of(model, name, known), right, known, own, limit, "unknown")
        assert wrong.own is not None
        return self._finding(step, wrong.name, ops, right, stored, wrong.own, wrong.bound, "fused")

    def _look_into_runs(self, step: int, first: Point, stored: set[str]) -> Finding:
        """The first op of a fused step whose result differs between the runs."""
        model = self._other.model(self.report.right.steps[step].graph)
        ops = unit_of(model, first.name, stored)
        names = names_of(model, ops)
        right = self._values_inside(step, model, ops)
        other = self._other.dump(f"inside_run_{step}", self._calls, [STORED, *_taps(model, ops)], step)
        for name in names:
            if name not in right.steps[step].tensors or name not in other.steps[0].tensors:
                continue
            found = difference(right.array(step, name), other.array(0, name))
            if found is not None and not found.equal:
                index = model.producer[model.id_of[name]]
                kind = model.graph.ops[index].kind
                return Finding(step, self._graph(step), kind, name, [index], "", False, found, 0.0)
        assert first.whole is not None
        kinds = " + ".join(_kinds(model, ops))
        return Finding(step, self._graph(step), kinds, first.name, ops, "fused", False, first.whole, 0.0)

    def _finding(
        self, step: int, name: str, ops: Sequence[int], right: Dump, given: set[str], own: Difference, limit: float,
        how: str,
    ) -> Finding:  # fmt: skip
        model = self._other.model(self._graph(step))
        index = model.producer[model.id_of[name]]
        # Updated states that are right are made by ops that are right.
        kinds = _kinds(model, unit_of(model, name, given, runs=False))
        if len(kinds) <= 1:
            kinds, how = [model.graph.ops[index].kind], ""
        folder = self._smallest(step, name, ops, right, given, limit)
        return Finding(step, self._graph(step), " + ".join(kinds), name, ops, how, True, own, limit, folder)

    def _smallest(
        self, step: int, name: str, ops: Sequence[int], right: Dump, given: set[str], limit: float
    ) -> Path | None:
        """The folder of a cut that shows the error; None where no small one does."""
        model, folder = self._other.model(self._graph(step)), self._other.folder.parent / "cut"
        folder.mkdir(parents=True, exist_ok=True)
        expected = right.array(step, name)
        # What is fused may depend on the op before: then the cut needs that op too.
        before = {model.producer[id_] for op in ops for id_ in model.graph.ops[op].inputs if id_ in model.producer}
        for chosen, reads in (
            (list(ops), given),
            (sorted({*ops, *before}), given - set(names_of(model, sorted(before)))),
        ):
            if any(value not in right.steps[step].tensors for value in reads_of(model, chosen, reads)):
                continue
            graph = cut(model, chosen, reads, {name}, "cut")
            shutil.rmtree(folder / "inputs", ignore_errors=True)
            write_cut(model, graph, folder / "cut.hmm", contained=True)
            write_inputs(model, [graph.values[id_].name for id_ in graph.inputs], right, step, folder / "inputs", "cut")
            np.save(folder / "expected.npy", expected)
            integer = [] if expected.dtype.kind == "f" else [name]
            made = self._other.run_graph("cut.dump", folder / "cut.hmm", folder / "inputs", integer)
            found = difference(expected, made.array(0, name))
            if found is not None and beyond(found, limit):
                return folder
        return None

    def _values_inside(self, step: int, model: Model, ops: Sequence[int]) -> Dump:
        """A dump of the right side that also holds what the ops make."""
        report = self.report
        if all(name in report.right.steps[step].tensors for name in names_of(model, ops)):
            return report.right
        if isinstance(self._right, Dump):
            return report.right
        found = self._right.dump(f"inside_{step}", self._calls, [STORED, *_taps(model, ops)], step)
        return _merged(report.right, found, step)

    def _cut_run(self, step: int, ops: Sequence[int], given: set[str], results: set[str], name: str) -> Dump:
        return run_cut(self._other, self.report.right, step, ops, given, results, name)

    def _theirs(self, step: int) -> Model | None:
        return None if isinstance(self._right, Dump) else self._right.model(self._graph(step))

    def _graph(self, step: int) -> str:
        return self.report.right.steps[step].graph


def _check_steps(right: Dump, other: Dump) -> None:
    """Refuses runs whose steps are of different tokens: tensors of the same name would be about other things."""
    for index in range(max(len(right.steps), len(other.steps))):
        sides = [dump.steps[index] if index < len(dump.steps) else None for dump in (right, other)]
        first, second = sides
        if first is None or second is None or (first.valid, first.current) != (second.valid, second.current):
            told = [
                f"{side} runs {step.graph} on {step.current} tokens after {step.valid}"
                if step
                else f"{side} runs nothing"
                for side, step in zip("AB", sides, strict=True)
            ]
            raise ArgumentError(
                f"the runs have different steps: in step {index} {', '.join(told)}; compare packages with the same "
                "--prefill-length, or recordings of the same calls"
            )


def _taps(model: Model, ops: Sequence[int]) -> list[str]:
    return [model.graph.values[id_].name for op in ops for id_ in model.graph.ops[op].outputs]


def _kinds(model: Model, ops: Sequence[int]) -> list[str]:
    return [model.graph.ops[op].kind for op in ops if model.graph.ops[op].kind not in ("Slice", "Reshape")]


def _merged(right: Dump, found: Dump, step: int) -> Dump:
    """`right` with the tensors of a dump of that step alone."""
    folder = found.folder.resolve()
    steps = [replace(each, tensors={name: (kind, str((right.folder / file).resolve())) for name, (kind, file) in
             each.tensors.items()}) for each in right.steps]  # fmt: skip
    added = {name: (kind, str(folder / file)) for name, (kind, file) in found.steps[0].tensors.items()}
    steps[step] = replace(steps[step], tensors={**added, **steps[step].tensors})
    return Dump(right.folder, right.source, steps)


def _first_of_each_graph(dump: Dump) -> list[int]:
    """The first step of each graph, then the others."""
    first = {step.graph: index for index, step in reversed(list(enumerate(dump.steps)))}
    chosen = sorted(first.values())
    return chosen + [index for index in range(len(dump.steps)) if index not in chosen]


def _is_other_input(point: Point) -> bool:
    return point.kind == "input" and (point.whole is None or not point.whole.equal)


def _differs(point: Point) -> bool:
    return point.is_result and point.whole is not None and not point.whole.equal
