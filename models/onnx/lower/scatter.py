"""ScatterND and ScatterElements at constant places: what is updated is gathered from behind the data."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call, lowers
from .elementwise import binary
from .gather import element_places, row_places
from .shape import take

_REDUCTIONS = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_MAX_ROUNDS = 64  # updates of one place, each of which is an op


@lowers("ScatterND")
def scatter_nd(call: Call) -> Tensor:
    x, updates = call.tensor(0), call.tensor(2)
    indices = np.asarray(call.constant(1, "the tensor of indices"))
    places = row_places(call, x, indices, 0)
    rest = x.shape[indices.shape[-1] :]
    if updates.shape != (*places.shape, *rest):
        raise call.node.unsupported(f"updates {list(updates.shape)}, expected {[*places.shape, *rest]}")
    return _scatter(call, x, updates, places.reshape(-1), math.prod(rest))


@lowers("ScatterElements")
def scatter_elements(call: Call) -> Tensor:
    x, updates = call.tensor(0), call.tensor(2)
    places = element_places(call, x, np.asarray(call.constant(1, "the tensor of indices")))
    if updates.shape != places.shape:
        raise call.node.unsupported(f"updates {list(updates.shape)}, expected {list(places.shape)}")
    return _scatter(call, x, updates, places.reshape(-1), 1)


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
        new = binary(call, _REDUCTIONS[reduction], old, take(call, news, chosen, 0))
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
