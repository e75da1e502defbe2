"""A model for several devices: one graph for each, and how they fit together (docs/hmm-format.md section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .graph import Graph, Op, Value

WHOLE = -1
# By op the operand that is what a run takes from the one before; the results behind the first are what it hands on.
CARRIED = {"CausalConv": 1, "DeltaRule": 3}


@dataclass(frozen=True, slots=True)
class Split:
    """Per input and output, in API order: the axis that is cut over the devices in rank order, or WHOLE."""

    inputs: Sequence[int]
    outputs: Sequence[int]

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs"):
            object.__setattr__(self, name, tuple(int(axis) for axis in getattr(self, name)))


def all_gathers(graph: Graph) -> list[Op]:
    """Returns the ops that take part in a collective, in order."""
    return [op for op in graph.ops if op.kind == "AllGather"]


def carried_values(graph: Graph) -> set[int]:
    """Ids of what a run takes from the one before or hands to the next, or of parts of that as the program sees it."""
    found: set[int] = set()
    for op in reversed(graph.ops):
        operand = CARRIED.get(op.kind)
        if operand is not None:
            found |= {*op.inputs[operand : operand + 1], *op.outputs[1:]}
        elif op.kind == "Concat" and not found.isdisjoint(op.outputs):
            found |= set(op.inputs)
    slices = (op for op in graph.ops if op.kind == "StridedSlice" and not found.isdisjoint(op.inputs[:1]))
    return found | {op.outputs[0] for op in list(slices)}


def check_parts(graphs: Sequence[Graph], split: Split | None, error: Callable[[str], Exception], label: str) -> None:
    """Raises `error(message)` unless graphs, each valid by itself, make a model for as many devices.

    Args:
        graphs: of the devices in rank order.
        split: None exactly for one device.
        error: makes the exception.
        label: names the file in messages.
    """
    if (split is not None) != (len(graphs) > 1):
        raise error(
            f"{label}: there must be a split section exactly when ndevice, which is {len(graphs)}, is more than 1"
        )
    if split is None:
        if graphs and all_gathers(graphs[0]):
            raise error(f"{label}: the graph has an AllGather, which needs ndevice to be 2 or more; it is 1")
        return

    def fail(message: str) -> None:
        raise error(f"{label}: {message}; compile the model again")

    inputs = [[g.values[i] for i in g.inputs] for g in graphs]
    outputs = [[g.values[i] for i in g.outputs] for g in graphs]
    _check_ports(inputs, split.inputs, "input", fail)
    _check_ports(outputs, split.outputs, "output", fail)
    live = [None if g.live_rows is None else g.inputs.index(g.live_rows) for g in graphs]
    for rank, position in enumerate(live):
        if position != live[0]:
            fail(f"live_rows of part {rank} is another input than that of part 0")
    if live[0] is not None:
        carried = carried_values(graphs[0])
        for what, ids, axes in (
            ("input", graphs[0].inputs, split.inputs),
            ("output", graphs[0].outputs, split.outputs),
        ):
            ports = zip(ids, axes, strict=True)
            _check_live_cuts([(graphs[0].values[id_], axis) for id_, axis in ports if id_ not in carried], what, fail)
    _check_gathers(graphs, fail)


def _check_ports(parts: Sequence[Sequence[Value]], axes: Sequence[int], what: str, fail: Callable[[str], Any]) -> None:
    first = parts[0]
    for rank, ports in enumerate(parts):
        if len(ports) != len(first):
            fail(f"part {rank} has {len(ports)} {what}s, part 0 has {len(first)}")
    if len(axes) != len(first):
        fail(f"the split section has {len(axes)} axes of {what}s, the graphs have {len(first)} {what}s")
    for port, (like, axis) in enumerate(zip(first, axes, strict=True)):
        if not WHOLE <= axis < len(like.shape):
            highest = len(like.shape) - 1
            fail(f"{what} '{like.name}', {_describe(like)}, is split on axis {axis}, expected -1 to {highest}")
        if axis != WHOLE and like.dtype == "int32":
            fail(f"{what} '{like.name}' is int32 and split on axis {axis}, expected a whole one on every device")
        for rank, ports in enumerate(parts):
            value = ports[port]
            if value.name != like.name:
                fail(f"{what} {port} is '{like.name}' in part 0, '{value.name}' in part {rank}")
            same = len(value.shape) == len(like.shape) and all(
                mine == other or index == axis
                for index, (mine, other) in enumerate(zip(value.shape, like.shape, strict=True))
            )
            if (value.kind, value.dtype) != (like.kind, like.dtype) or not same:
                fail(
                    f"{what} '{like.name}' is {_describe(like)} in part 0 and {_describe(value)} in part {rank}; "
                    f"parts may differ only along the split axis, which is {axis}"
                )


def _check_live_cuts(ports: Sequence[tuple[Value, int]], what: str, fail: Callable[[str], Any]) -> None:
    """live_rows counts rows of axis 1, over all devices: what has live rows has them whole on each."""
    for value, axis in ports:
        if value.kind != "state" and len(value.shape) >= 3 and axis in (0, 1):
            fail(
                f"{what} '{value.name}', {_describe(value)}, has live rows and is split on axis {axis}, "
                "expected -1 or more than 1"
            )


def _check_gathers(graphs: Sequence[Graph], fail: Callable[[str], Any]) -> None:
    """The parts of each AllGather must tile its columns, without gap or overlap."""
    gathers = [all_gathers(graph) for graph in graphs]
    columns = [0] * len(gathers[0])  # given so far
    for rank, (graph, ops) in enumerate(zip(graphs, gathers, strict=True)):
        if len(ops) != len(gathers[0]):
            fail(f"part {rank} has {len(ops)} AllGather ops, part 0 has {len(gathers[0])}")
        for index, op in enumerate(ops):
            if len(op.inputs) != 1 or len(op.outputs) != 1:
                fail(f"AllGather {index} of part {rank} has {len(op.inputs)} inputs and {len(op.outputs)} outputs")
            x, y = graph.values[op.inputs[0]], graph.values[op.outputs[0]]
            like = graphs[0].values[gathers[0][index].outputs[0]]
            if (y.dtype, y.shape) != (like.dtype, like.shape):
                fail(
                    f"AllGather {index} gives '{like.name}', {_describe(like)}, in part 0 and '{y.name}', "
                    f"{_describe(y)}, in part {rank}"
                )
            if (offset := op.attributes.get("offset")) != columns[index]:
                fail(
                    f"AllGather {index} ('{y.name}') of part {rank} begins at column {offset}, expected "
                    f"{columns[index]}, where the part before it ends"
                )
            columns[index] += x.shape[-1]
            if rank == len(graphs) - 1 and columns[index] != y.shape[-1]:
                fail(f"AllGather {index} ('{y.name}'): the parts give {columns[index]} columns of {y.shape[-1]}")


def _describe(value: Value) -> str:
    return f"{value.kind} {value.dtype} {list(value.shape)}"
