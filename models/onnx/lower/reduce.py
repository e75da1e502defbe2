"""Reductions, cumulative sums, softmax, TopK and ArgMax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, lowers
from .elementwise import binary, unary
from .integers import running, whole, wrapped
from .shape import strided

_TRIANGLE = 256  # elements that one product sums up
_OF_INTEGERS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1")
_REDUCTIONS = (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
)


def last(call: Call, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, list[int]]:
    """x with `axes` behind the others, as [.., n]; and the order of axes that does it."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = kept + list(axes)
    moved = call.transpose(x, order)
    count = math.prod(x.shape[axis] for axis in axes)
    return call.reshape(moved, (*(x.shape[axis] for axis in kept), count)), order


def reduced(call: Call, kind: str, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """One of our reductions over `axes`."""
    flat, _ = last(call, x, axes)
    y = call.op(kind, [flat], (*flat.shape[:-1], 1), result=x.kind)
    shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape) if keep or axis not in axes]
    return call.reshape(y, shape)


@lowers(*_REDUCTIONS)
def reduce(call: Call) -> Tensor:
    kind = call.node.op
    x = call.tensor(0) if kind in _OF_INTEGERS else call.floats(0)
    rank = len(x.shape)
    axes = call.ints(1, "the axes") if call.has(1) else call.attr("axes")
    if not axes:
        if call.int_attr("noop_with_empty_axes", 0):
            return _of_each(call, x)
        axes = range(rank)
    places = sorted({call.axis(axis, rank) for axis in axes})
    keep = bool(call.int_attr("keepdims", 1))
    if is_integer(x.kind):
        return _of_integers(call, kind, x, places, keep)
    if kind == "ReduceL2":
        return unary(call, "Sqrt", reduced(call, "ReduceSumSquare", x, places, keep))
    if kind == "ReduceLogSum":
        return unary(call, "Log", reduced(call, "ReduceSum", x, places, keep))
    if kind == "ReduceLogSumExp":
        largest = reduced(call, "ReduceMax", x, places, True)
        exps = unary(call, "Exp", binary(call, "Sub", x, largest))
        y = binary(call, "Add", unary(call, "Log", reduced(call, "ReduceSum", exps, places, True)), largest)
        return call.reshape(y, [e for i, e in enumerate(y.shape) if keep or i not in places])
    return reduced(call, kind, x, places, keep)


def _of_integers(call: Call, kind: str, x: Tensor, places: list[int], keep: bool) -> Tensor:
    """Of int32, whose sums and products wrap; a mean is the quotient without its fraction."""
    count = math.prod(x.shape[axis] for axis in places)
    if kind in ("ReduceL1", "ReduceSumSquare"):
        x = _of_each(call, x)
    y = reduced(call, kind if kind in ("ReduceMax", "ReduceMin", "ReduceProd") else "ReduceSum", x, places, keep)
    if kind == "ReduceMean":
        y = binary(call, "Div", y, whole(count))
    return wrapped(call, y, x.kind)


def _of_each(call: Call, x: Tensor) -> Tensor:
    """A reduction over no axes: of each element by itself."""
    kind = call.node.op
    if kind in ("ReduceL1", "ReduceL2"):
        return binary(call, "Max", x, binary(call, "Sub", whole(0), x)) if is_integer(x.kind) else unary(call, "Abs", x)
    if kind == "ReduceSumSquare":
        return binary(call, "Mul", x, x)
    if kind == "ReduceLogSum":
        return unary(call, "Log", x)
    return x


@lowers("CumSum", "CumProd")
def cumulative(call: Call) -> Tensor:
    x = call.tensor(0)
    axis = call.axis(int(call.scalar(1, "the axis")), len(x.shape))
    flat, order = last(call, x, [axis])
    backwards, exclusive = bool(call.int_attr("reverse", 0)), bool(call.int_attr("exclusive", 0))
    if call.node.op == "CumProd" or is_integer(x.kind):
        y = running(call, "Add" if call.node.op == "CumSum" else "Mul", flat, backwards, exclusive)
    else:
        y = _sums(call, flat, backwards, exclusive)
    return call.transpose(call.reshape(y, [x.shape[i] for i in order]), [order.index(i) for i in range(len(order))])


def _sums(call: Call, x: Tensor, backwards: bool, exclusive: bool) -> Tensor:
    """Sums of all up to each element of the last axis: products with a triangle, of parts if the axis is long."""
    *lead, count = x.shape
    size = min(count, _TRIANGLE)
    before = np.arange(size)[:, None] - np.arange(size)  # of input and result
    if backwards:
        before = -before
    triangle = call.emit.weight(before < 0 if exclusive else before <= 0)
    rows = math.prod(lead) * -(-count // size)
    if count % size:
        x = call.op(
            "Pad", [x], (*lead, call.places(count + -count % size)), {"begins": [0] * len(x.shape), "value": 0.0}
        )
    y = call.op("MatMul", [call.reshape(x, (rows, size)), triangle], (rows, size))
    if count > size:
        parts = call.reshape(x, (*lead, rows // math.prod(lead), size))
        totals = reduced(call, "ReduceSum", parts, [len(lead) + 1], False)
        offsets = call.reshape(_sums(call, totals, backwards, True), (rows, 1))
        y = binary(call, "Add", y, offsets)
        y = call.reshape(y, (*lead, rows // math.prod(lead) * size))
        y = strided(call, y, [0] * len(x.shape), [1] * len(x.shape), [*lead, count])
    return call.reshape(y, (*lead, count))


def softmax_axes(call: Call, x: Tensor) -> list[int]:
    """Of Softmax and its like: one axis, before opset 13 that and all behind it."""
    rank = len(x.shape)
    if call.node.opset < 13:
        return list(range(call.axis(call.int_attr("axis", 1), rank), rank))
    return [call.axis(call.int_attr("axis", -1), rank)]


@lowers("Softmax", "LogSoftmax")
def softmax(call: Call) -> Tensor:
    x = call.floats(0)
    flat, order = last(call, x, softmax_axes(call, x))
    y = call.op("Softmax", [flat], flat.shape, {"log": 1} if call.node.op == "LogSoftmax" else {})
    back = [order.index(i) for i in range(len(order))]
    return call.transpose(call.reshape(y, [x.shape[i] for i in order]), back)


@lowers("TopK")
def top_k(call: Call) -> list[Tensor]:
    x = call.tensor(0)
    axis = call.axis(call.int_attr("axis", -1), len(x.shape))
    count = int(call.scalar(1, "k"))
    if not 1 <= count <= x.shape[axis]:
        raise call.node.unsupported(f"k = {count} of an axis of {x.shape[axis]}")
    return list(best(call, x, axis, count, bool(call.int_attr("largest", 1))))


def best(call: Call, x: Tensor, axis: int, count: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The `count` largest or smallest of an axis, and their indices."""
    flat, order = last(call, x, [axis])
    shape = (*flat.shape[:-1], count)
    values, indices = call.emit.op_many(
        "TopK", [flat], [(shape, x.kind), (shape, "int")], {"k": count, "largest": int(largest)}
    )
    back = [order.index(i) for i in range(len(order))]
    return call.transpose(values, back), call.transpose(indices, back)


@lowers("ArgMax", "ArgMin")
def arg_max(call: Call) -> Tensor:
    x = call.tensor(0)
    axis = call.axis(call.int_attr("axis", 0), len(x.shape))
    extent = x.shape[axis]
    from_end = bool(call.int_attr("select_last_index", 0))
    if from_end:  # the first of equal ones, seen from the end
        steps = [-1 if i == axis else 1 for i in range(len(x.shape))]
        x = strided(call, x, [extent - 1 if i == axis else 0 for i in range(len(x.shape))], steps, list(x.shape))
    _, indices = best(call, x, axis, 1, call.node.op == "ArgMax")
    if from_end:
        count = math.prod(indices.shape)
        table = call.emit.weight(np.arange(call.places(extent))[::-1], "int32")
        flat = call.op("Gather", [table, call.reshape(indices, (count,))], (count,), {"axis": 0}, "int")
        indices = call.reshape(flat, indices.shape)
    if call.int_attr("keepdims", 1):
        return indices
    return call.reshape(indices, [extent for i, extent in enumerate(x.shape) if i != axis])
