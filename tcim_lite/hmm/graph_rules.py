"""The rules that every graph keeps (docs/hmm-format.md section 5), for writers and readers.

They are what can be told without knowing the ops: ids, names, order. The shapes and dtypes of each op are the runtime's
to check (csrc/graph/ops).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import layout
from .graph import Graph


def check_graph(graph: Graph, error: Callable[[str], Exception], label: str) -> None:
    """Raises `error(message)` for a graph that breaks the rules of section 5.

    Args:
        graph: what to check.
        error: makes the exception, `ValueError` for writers and `HmmFormatError` for readers.
        label: names the graph in messages.
    """

    def fail(message: str) -> None:
        raise error(f"{label}: {message}")

    _check_values(graph, fail)
    _check_ports(graph, _check_ops(graph, fail), fail)


def _check_values(graph: Graph, fail: Callable[[str], None]) -> None:
    names: set[str] = set()
    for value in graph.values:
        if not value.name:
            fail("a value has no name")
        if value.name in names:
            fail(f"two values have the name '{value.name}'")
        names.add(value.name)
        shape = value.shape
        if not 1 <= len(shape) <= layout.MAX_RANK:
            fail(f"value '{value.name}' has rank {len(shape)}, expected 1 to {layout.MAX_RANK}")
        if any(not 1 <= extent <= layout.MAX_EXTENT for extent in shape):
            fail(f"value '{value.name}' has shape {list(shape)}, extents are 1 to 2^40")
        if math.prod(shape) * layout.ITEM_BYTES[value.dtype] > layout.MAX_TENSOR_BYTES:
            fail(f"value '{value.name}' has shape {list(shape)}, more than 2^48 bytes")
        if (value.kind == "weight") != (value.weight is not None):
            fail(f"value '{value.name}' is of kind {value.kind} and weight is {value.weight}; only weights have one")
        if value.kind != "weight" and value.format != "dense":
            fail(f"value '{value.name}' is of kind {value.kind} and has format {value.format}, expected dense")


def _check_ids(graph: Graph, ids: Sequence[int], what: str, fail: Callable[[str], None]) -> None:
    for id_ in ids:
        if not 0 <= id_ < len(graph.values):
            fail(f"{what} names value {id_}, there are {len(graph.values)}")


def _check_ops(graph: Graph, fail: Callable[[str], None]) -> set[int]:
    """Returns the values that are there when all ops have run."""
    ready = {id_ for id_, value in enumerate(graph.values) if value.kind != "intermediate"}
    for index, op in enumerate(graph.ops):
        what = f"op {index} ({op.kind})"
        _check_ids(graph, (*op.inputs, *op.outputs), what, fail)
        for id_ in op.inputs:
            if id_ not in ready:
                fail(f"{what} reads '{graph.values[id_].name}' before it is produced")
        for id_ in op.outputs:
            if graph.values[id_].kind != "intermediate":
                fail(f"{what} writes '{graph.values[id_].name}', which is of kind {graph.values[id_].kind}")
            if id_ in ready:
                fail(f"{what} writes '{graph.values[id_].name}', which is already produced")
            ready.add(id_)
    return ready


def _check_ports(graph: Graph, ready: set[int], fail: Callable[[str], None]) -> None:
    _check_ids(graph, graph.inputs, "the list of inputs", fail)
    _check_ids(graph, graph.outputs, "the list of outputs", fail)
    listed = set(graph.inputs)
    if len(listed) != len(graph.inputs) or len(set(graph.outputs)) != len(graph.outputs):
        fail("a value is listed twice among the inputs or outputs")
    for id_, value in enumerate(graph.values):
        if (value.kind in ("input", "state")) != (id_ in listed):
            fail(f"value '{value.name}' is of kind {value.kind}; exactly the inputs and states are listed as inputs")
    for id_ in graph.outputs:
        if graph.values[id_].kind != "intermediate":
            fail(f"output '{graph.values[id_].name}' is of kind {graph.values[id_].kind}, expected intermediate")
        if id_ not in ready:
            fail(f"output '{graph.values[id_].name}' is produced by no op")
    if graph.live_rows is not None:
        _check_ids(graph, (graph.live_rows,), "live_rows", fail)
        value = graph.values[graph.live_rows]
        if value.kind != "input" or value.dtype != "int32" or tuple(value.shape) != (1,):
            fail(
                f"live_rows is '{value.name}', {value.kind} {value.dtype} {list(value.shape)}; expected input int32 [1]"
            )


def check_weight_values(
    graph: Graph, entries: Sequence[layout.WeightEntry], error: Callable[[str], Exception], label: str
) -> None:
    """Raises `error` unless every value of kind weight agrees with its row of the weight table."""
    for value in graph.values:
        if value.weight is None:
            continue
        if not 0 <= value.weight < len(entries):
            raise error(f"{label}: value '{value.name}' names weight {value.weight}, the table has {len(entries)}")
        entry = entries[value.weight]
        if (value.dtype, value.format, tuple(value.shape)) != (entry.dtype, entry.format, tuple(entry.shape)):
            raise error(
                f"{label}: value '{value.name}' is {value.dtype} {value.format} {list(value.shape)}, its weight "
                f"'{entry.name}' is {entry.dtype} {entry.format} {list(entry.shape)}"
            )
