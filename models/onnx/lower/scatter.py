"""ScatterND and ScatterElements: what is updated is gathered from behind the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor, is_integer
from ..table import Call, lowers
from .box import box_of, with_box
from .elementwise import binary
from .gather import checked_axis, checked_rows, computed_places, element_places, from_front, row_places
from .integers import int32, to_floats
from .matmul import product
from .rows import MAX_PAIRS, is_there, newest, with_rows
from .shape import strided, take


class _Reduction(NamedTuple):
    op: str  # of two operands
    over_axis: str
    neutral: Callable[[float], float]  # what changes nothing, by the largest number


_REDUCTIONS = {
    "add": _Reduction("Add", "ReduceSum", lambda most: 0),
    "mul": _Reduction("Mul", "ReduceProd", lambda most: 1),
    "max": _Reduction("Max", "ReduceMax", lambda most: -most),
    "min": _Reduction("Min", "ReduceMin", lambda most: most),
}
_MAX_ROUNDS = 64  # updates of one place, each of which is an op


@lowers("ScatterND")
def scatter_nd(call: Call) -> Tensor:
    x, indices = call.tensor(0), call.operand(1)
    if 0 in indices.shape[:-1] and 0 in call.operand(2).shape:
        return x
    updates = call.tensor(2)
    rest = x.shape[indices.shape[-1] if indices.shape else 0 :]
    shape, columns = (*indices.shape[:-1], *rest), math.prod(rest)
    if updates.shape != shape:
        raise call.node.unsupported(f"updates {list(updates.shape)}, expected {list(shape)}")
    if not isinstance(indices, Tensor):
        indices = checked_rows(call, x, np.asarray(indices), 0)
        if call.attr("reduction", "none") == "none" and x.kind == updates.kind and (box := box_of(indices)):
            return with_box(call, x, box, updates)
        return _scatter(call, x, updates, row_places(call, x, indices, 0).reshape(-1), columns)
    rows, count = math.prod(x.shape) // columns, math.prod(indices.shape[:-1])
    found = from_front(call, call.reshape(computed_places(call, x, indices, 0), (count, 1)), [rows])
    data, news = call.reshape(x, (1, rows, columns)), call.reshape(updates, (1, count, columns))
    return call.reshape(_at_computed(call, data, call.reshape(found, (1, 1, count)), news), x.shape)


@lowers("ScatterElements", "Scatter")
def scatter_elements(call: Call) -> Tensor:
    x, indices, updates = call.tensor(0), call.operand(1), call.tensor(2)
    if updates.shape != tuple(indices.shape):
        raise call.node.unsupported(f"updates {list(updates.shape)}, expected {list(indices.shape)}")
    if not isinstance(indices, Tensor):
        return _scatter(call, x, updates, element_places(call, x, np.asarray(indices)).reshape(-1), 1)
    axis, rank = checked_axis(call, x, indices.shape), len(x.shape)
    changed = [x.shape[i] if i == axis else indices.shape[i] for i in range(rank)]
    if changed == list(x.shape):
        return _along_axis(call, x, axis, indices, updates)
    return _with_corner(call, x, _along_axis(call, _part(call, x, [0] * rank, changed), axis, indices, updates))


def _part(call: Call, x: Tensor, starts: list[int], extents: list[int]) -> Tensor:
    return strided(call, x, starts, [1] * len(extents), extents)


def _with_corner(call: Call, x: Tensor, corner: Tensor) -> Tensor:
    """x with the elements from the first of each axis on replaced; axis by axis, what lies behind is added."""
    for i in range(len(x.shape)):
        more = x.shape[i] - corner.shape[i]
        if not more:
            continue
        shape = [*x.shape[: i + 1], *corner.shape[i + 1 :]]
        starts = [corner.shape[i] if j == i else 0 for j in range(len(shape))]
        behind = _part(call, x, starts, [more if j == i else extent for j, extent in enumerate(shape)])
        corner = call.op("Concat", [corner, behind], shape, {"axis": i}, x.kind)
    return corner


def _along_axis(call: Call, x: Tensor, axis: int, indices: Tensor, updates: Tensor) -> Tensor:
    """x with updates at computed places along an axis; the other extents are those of x."""
    rank = len(x.shape)
    order = [i for i in range(rank) if i != axis] + [axis]
    extent, count = x.shape[axis], indices.shape[axis]
    rows = math.prod(x.shape) // extent
    places = from_front(call, call.reshape(call.transpose(indices, order), (rows * count, 1)), [extent])
    data, news = (call.reshape(call.transpose(part, order), (rows, part.shape[axis], 1)) for part in (x, updates))
    y = _at_computed(call, data, call.reshape(places, (rows, 1, count)), news)
    return call.transpose(call.reshape(y, [x.shape[i] for i in order]), [order.index(i) for i in range(rank)])


def _at_computed(call: Call, x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """x [B, n, c] with updates [B, k, c] at rows whose numbers [B, 1, k] the network computes."""
    (batch, extent, columns), reduction = x.shape, call.attr("reduction", "none")
    if x.kind != updates.kind or not is_integer(places.kind):
        raise call.node.unsupported(f"updates of {updates.kind}s at places of {places.kind}s in {x.kind}s")
    if reduction == "none":
        return with_rows(call, x, places, updates, 1) if batch == 1 else _from_behind(call, x, places, updates)
    found = is_there(call, places, extent)
    if reduction == "add" and x.kind == "float":
        return binary(call, "Add", x, product(call, to_floats(call, found), updates))
    if reduction not in _REDUCTIONS:
        raise call.node.unsupported(f"reduction {reduction!r:.40} of {x.kind}s")
    if columns == 1:
        return _folded(call, x, found, call.reshape(updates, places.shape))
    # Several columns come in one batch (ScatterND); as batches of one column they can be folded.
    if columns * extent * updates.shape[1] > MAX_PAIRS:
        raise call.node.unsupported(
            f"reduction {reduction!r:.40} of {updates.shape[1]} rows of {columns} at computed places among {extent}; "
            f"the limit is {MAX_PAIRS} pairs of elements"
        )
    by_column = _folded(call, call.transpose(x, (2, 1, 0)), found, call.transpose(updates, (2, 0, 1)))
    return call.transpose(by_column, (2, 1, 0))


def _from_behind(call: Call, x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """x [B, n, c] with updates [B, k, c] at places [B, 1, k], the last of each place, as a Gather of both."""
    (batch, extent, columns), count = x.shape, places.shape[2]
    last = newest(call, places, extent)
    call.places(batch * extent)
    own = np.arange(batch * extent).reshape(batch, extent, 1)
    behind = int32(call, "Add", last, batch * extent - 1 + np.arange(batch).reshape(batch, 1, 1) * count)
    source = call.op("Where", [last, behind, call.source(own)], last.shape, result="int")
    rows, news = call.reshape(x, (batch * extent, columns)), call.reshape(updates, (batch * count, columns))
    both = call.op("Concat", [rows, news], (batch * (extent + count), columns), {"axis": 0}, x.kind)
    taken = [both, call.reshape(source, (batch * extent,))]
    return call.reshape(call.op("Gather", taken, (batch * extent, columns), {"axis": 0}, x.kind), x.shape)


def _folded(call: Call, x: Tensor, found: Tensor, updates: Tensor) -> Tensor:
    """x [B, n, 1] reduced with those of the updates [B, 1, k] that are there [B, n, k], or [1, n, k] for all B."""
    reduction, whole = _REDUCTIONS[call.attr("reduction")], is_integer(x.kind)
    most = float(np.iinfo(np.int32).max if whole else np.finfo(call.emit.dtype).max)
    none = np.asarray(reduction.neutral(most), np.int64 if whole else np.float32)
    condition = found if whole else to_floats(call, found)
    shape = (*x.shape[:2], updates.shape[2])
    chosen = call.op("Where", [condition, updates, call.source(none)], shape, result=x.kind)
    return binary(call, reduction.op, x, call.op(reduction.over_axis, [chosen], x.shape, result=x.kind))


def _scatter(call: Call, x: Tensor, updates: Tensor, places: NDArray[np.int64], columns: int) -> Tensor:
    """Rows of `columns` elements at `places` are replaced by those of `updates`, or reduced with them."""
    if x.kind != updates.kind:
        raise call.node.unsupported("operands of integers and of floating point numbers")
    rows = call.reshape(x, (call.places(math.prod(x.shape) // columns), columns))
    news = call.reshape(updates, (len(places), columns))
    reduction = call.attr("reduction", "none")
    if reduction == "none":
        return call.reshape(_replaced(call, rows, news, places), x.shape)
    if reduction not in _REDUCTIONS or x.kind != "float":
        raise call.node.unsupported(f"reduction {reduction!r:.40} of {x.kind}s")
    left = np.arange(len(places))
    for _ in range(_MAX_ROUNDS):  # the first update of each place, then the second of those that have one
        _, first = np.unique(places[left], return_index=True)
        chosen = left[first]
        old = take(call, rows, places[chosen], 0)
        new = binary(call, _REDUCTIONS[reduction].op, old, take(call, news, chosen, 0))
        rows = _replaced(call, rows, new, places[chosen])
        left = np.delete(left, first)
        if not left.size:
            return call.reshape(rows, x.shape)
    raise call.node.unsupported(f"more than {_MAX_ROUNDS} updates of one place")


def _replaced(call: Call, rows: Tensor, news: Tensor, places: NDArray[np.int64]) -> Tensor:
    """Of several updates of one place the last one stays."""
    count = rows.shape[0]
    sources = np.arange(count)
    sources[places] = count + np.arange(len(places))
    both = call.op("Concat", [rows, news], (count + len(places), rows.shape[1]), {"axis": 0}, rows.kind)
    return take(call, both, sources, 0)
