"""Rows of one axis, the same for all others, that an update replaces at places which the network computes."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..network import OWN
from ..table import Call, lowers
from .elementwise import where
from .gather import from_front
from .integers import int32, to_floats, whole

MAX_PAIRS = 1 << 24  # of elements and updates whose computed place may be theirs


@lowers("ScatterRows", domain=OWN)
def scatter_rows(call: Call) -> Tensor:
    """What `fuse` makes of updates along an axis: the operands are x, the places [k] and the updates, k at the axis."""
    return with_rows(call, call.tensor(0), call.tensor(1), call.tensor(2), call.int_attr("axis", 0))


def with_rows(call: Call, x: Tensor, places: Tensor, updates: Tensor, axis: int) -> Tensor:
    """x with the rows `places` [k] of an axis replaced, in one pass over x; of several updates of a row the last stays.

    A place below 0 counts from the end, one beyond either end is the end.
    """
    rows, count = x.shape[axis], math.prod(places.shape)
    if x.kind != updates.kind or not is_integer(places.kind):
        raise call.node.unsupported(f"updates of {updates.kind}s at places of {places.kind}s in {x.kind}s")
    found = from_front(call, call.reshape(places, (count, 1)), [rows])
    chosen = newest(call, call.reshape(found, (1, 1, count)), rows)
    if count > 1:  # 0 is none, whose place in the updates does not matter
        source = call.reshape(int32(call, "Sub", chosen, whole(1)), (rows,))
        updates = call.op("Gather", [updates, source], x.shape, {"axis": axis}, x.kind)
    return replaced(call, x, call.reshape(chosen, [rows if i == axis else 1 for i in range(len(x.shape))]), updates)


def replaced(call: Call, x: Tensor, is_new: Tensor, news: Tensor) -> Tensor:
    """News where an integer is not 0, else x as it lies: a cache whose output is bound to its input stays in place."""
    condition = is_new if is_integer(x.kind) else to_floats(call, is_new)
    return where(Call(call.node, [condition, news, x], call.emit))


def newest(call: Call, places: Tensor, rows: int) -> Tensor:
    """Which of the updates at `places` [B, 1, k] is the last for each row: [B, rows, 1], from 1 on; 0 is none."""
    batch, count = places.shape[0], places.shape[2]
    found = is_there(call, places, rows)
    if count == 1:
        return found
    numbered = int32(call, "Mul", found, np.arange(call.places(count)) + 1)
    return call.op("ReduceMax", [numbered], (batch, rows, 1), result="int")


def is_there(call: Call, places: Tensor, rows: int) -> Tensor:
    """1 where an update at `places` [B, 1, k] is for a row, else 0: [B, rows, k].

    Raises:
        UnsupportedNodeError: These are too many comparisons.
    """
    batch, count = places.shape[0], places.shape[2]
    if batch * rows * count > MAX_PAIRS:
        raise call.node.unsupported(
            f"{count} updates at computed places among {rows}, {batch} times; the limit is {MAX_PAIRS} pairs. "
            "With constant places there is none"
        )
    return int32(call, "Equal", places, np.arange(call.places(rows))[:, None])
