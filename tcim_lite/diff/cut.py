"""Cuts of a graph: some of its ops as a model of their own, which reads given values instead of computing them."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import HmmFormatError
from ..hmm import Container, Graph, Op, Sibling, Value, WeightData, WeightEntry, read, write_model

GIVEN = ".given"  # the name of an input that stands for a value, after the value's
_FLOATS = ("float16", "float32")


class Model:
    """A `.hmm` and the `.hmw` beside it."""

    def __init__(self, path: Path) -> None:
        """Reads both.

        Raises:
            HmmFormatError: One of them is missing or damaged, or the model is for several devices.
        """
        self.path, self.container = path, read(path)
        if len(self.container.graphs) != 1:
            raise HmmFormatError(
                f"{path}: is a model for {self.container.ndevice} devices, expected one; take its .hmm"
            )
        self.graph = self.container.graphs[0]
        self.producer = {id_: index for index, op in enumerate(self.graph.ops) for id_ in op.outputs}
        self.id_of = {value.name: id_ for id_, value in enumerate(self.graph.values)}
        sibling = self.container.sibling
        self.gathered = _behind(self.graph, "BatchGather")
        self._weights: Container | None = None if sibling is None else read(path.parent / sibling.file)

    def value(self, name: str) -> Value:
        """A value by its name."""
        return self.graph.values[self.id_of[name]]

    def weight_bytes(self, entry: WeightEntry) -> memoryview:
        """The packed bytes of a weight, wherever they lie."""
        if not entry.external:
            return self.container.weight_bytes(entry)
        assert self._weights is not None
        stored = next(other for other in self._weights.weights if other.hash == entry.hash)
        return self._weights.weight_bytes(stored)


def states_of(op: Op) -> dict[int, int]:
    """By output that is an updated state: the state, both as value ids."""
    return {out: op.inputs[1 + 3 * i] for i, out in enumerate(op.outputs)} if op.kind == "KVcache" else {}


def unit_of(model: Model, name: str, given: Collection[str], *, runs: bool = True) -> list[int]:
    """The ops, in execution order, that make a value from values of `given`, inputs and weights.

    With `runs` those of a graph that can run (see `cut`): also the ops that make updated states of `given`.
    """
    found: set[int] = set()
    todo = [model.id_of[name]]
    while todo:
        op = model.producer.get(todo.pop())
        if op is None or op in found:
            continue
        found.add(op)
        for id_ in model.graph.ops[op].inputs:
            if (runs and _stays(model, id_)) or model.graph.values[id_].name not in given:
                todo.append(id_)
    return sorted(found)


def cut(model: Model, ops: Iterable[int], given: Collection[str], results: Collection[str], name: str) -> Graph:
    """The graph of some ops. Values of `given`, and those that no op of the cut makes, become inputs.

    What a KVcache updates and the ids of a MoERoute stay as they are made: the rules of graphs ask for it.

    Args:
        model: The whole.
        ops: Their indices; with a FlashAttention its KVcaches, with a MoELinear its MoERoute.
        given: Names of values that are read from inputs `NAME.given`.
        results: Names of values that become outputs, where the ops make them and the format allows it: updated states
            and integers are none.
        name: Of the new graph.

    Returns:
        The graph. Its `Value.weight` still counts in the weights of the model.
    """
    graph = model.graph
    chosen = [graph.ops[index] for index in sorted(set(ops))]
    made = {id_ for op in chosen for id_ in op.outputs}
    values: list[Value] = []
    inputs: list[int] = []
    new_ops: list[Op] = []
    outputs: list[int] = []
    ids: dict[int | tuple[int, str], int] = {}

    def add(value: Value) -> int:
        values.append(value)
        if value.kind in ("input", "state"):
            inputs.append(len(values) - 1)
        return len(values) - 1

    def give(id_: int) -> int:
        """An input for a value. An input of three axes has live rows; what is gathered from them has none."""
        value = graph.values[id_]
        given_name = value.name + GIVEN
        if graph.live_rows is None or id_ not in model.gathered:
            return add(Value(given_name, "input", value.dtype, value.shape))
        flat = add(Value(given_name, "input", value.dtype, (math.prod(value.shape[:-1]), value.shape[-1])))
        shaped = add(Value(f"{given_name}.shaped", "intermediate", value.dtype, value.shape))
        new_ops.append(Op("Reshape", [flat], [shaped]))
        return shaped

    def take(id_: int) -> int:
        """The new id of what an op reads."""
        value = graph.values[id_]
        fresh = value.kind == "intermediate" and not (id_ in made and (_stays(model, id_) or value.name not in given))
        key: int | tuple[int, str] = (id_, GIVEN) if fresh else id_
        if key not in ids:
            ids[key] = give(id_) if fresh else add(value)
        return ids[key]

    live_rows = None if graph.live_rows is None else take(graph.live_rows)
    for op in chosen:
        operands = [take(id_) for id_ in op.inputs]
        for id_ in op.outputs:
            ids[id_] = len(values)
            values.append(replace(graph.values[id_], role=None, aliases=()))
            wanted = graph.values[id_].name in results
            if wanted and graph.values[id_].dtype in _FLOATS and id_ not in states_of(op):
                outputs.append(ids[id_])
        new_ops.append(replace(op, inputs=operands, outputs=[ids[id_] for id_ in op.outputs]))
    return Graph(name, values, new_ops, inputs, outputs, live_rows)


def write_cut(model: Model, graph: Graph, path: Path, *, contained: bool) -> None:
    """Writes a cut as a `.hmm`.

    Args:
        model: What it was cut from.
        graph: From `cut`.
        path: Where.
        contained: The weights are copied into the file; otherwise the `.hmw` is linked beside it, if there is one.
    """
    weights: list[WeightEntry | WeightData] = []
    index_of: dict[int, int] = {}
    values = []
    sibling = model.container.sibling
    for value in graph.values:
        if value.weight is not None:
            entry = model.container.weights[value.weight]
            if value.weight not in index_of:
                index_of[value.weight] = len(weights)
                copied = contained or not entry.external
                data = np.frombuffer(model.weight_bytes(entry), np.uint8) if copied else None
                weights.append(
                    WeightData(entry.name, entry.dtype, entry.format, entry.shape, data) if copied else entry
                )
            value = replace(value, weight=index_of[value.weight])
        values.append(value)
    external = any(isinstance(weight, WeightEntry) for weight in weights)
    if external:
        assert sibling is not None
        _link((model.path.parent / sibling.file).resolve(), path.parent / sibling.file)
    keep: Sibling | None = sibling if external else None
    write_model(path, replace(graph, values=values), weights, ncore=model.container.ncore, sibling=keep)


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _stays(model: Model, id_: int) -> bool:
    """Whether the rules of graphs ask that an op of the same graph makes the value."""
    index = model.producer.get(id_)
    if index is None:
        return False
    op = model.graph.ops[index]
    return id_ in states_of(op) or (op.kind == "MoERoute" and id_ == op.outputs[0])


def _behind(graph: Graph, kind: str) -> set[int]:
    """The values that are computed from a result of such an op."""
    found: set[int] = set()
    for op in graph.ops:
        if op.kind == kind or not found.isdisjoint(op.inputs):
            found.update(op.outputs)
    return found


def names_of(model: Model, ops: Sequence[int]) -> list[str]:
    """The values that the ops make, in execution order."""
    return [model.graph.values[id_].name for index in ops for id_ in model.graph.ops[index].outputs]


def reads_of(model: Model, ops: Sequence[int], given: Collection[str]) -> list[str]:
    """The values of `given` that a cut of the ops reads."""
    graph = cut(model, ops, given, (), "reads")
    names = [graph.values[id_].name for id_ in graph.inputs]
    return [name.removesuffix(GIVEN) for name in names if name.endswith(GIVEN)]
