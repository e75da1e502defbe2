"""TensorScatter, and caches of keys and values that a network updates without being given any memory of its own."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, Operand, lowers
from .integers import int32, kind_of, whole
from .rows import replaced


@lowers("TensorScatter")
def tensor_scatter(call: Call) -> Tensor:
    x, update = call.tensor(0), call.tensor(1)
    rank, mode = len(x.shape), call.attr("mode", "linear")
    axis = call.axis(call.int_attr("axis", -2), rank)
    if mode not in ("linear", "circular") or axis < 1:
        raise call.node.unsupported(f"mode {mode!r:.40} on axis {axis}")
    if (
        x.kind != update.kind
        or len(update.shape) != rank
        or any(
            extent != own if i != axis else extent > own
            for i, (extent, own) in enumerate(zip(update.shape, x.shape, strict=True))
        )
    ):
        raise call.node.unsupported(f"an update {list(update.shape)} of {update.kind}s in {list(x.shape)}")
    begins = call.operand(2) if call.has(2) else np.zeros(x.shape[0], np.int64)
    return written_at(call, x, update, begins, axis, mode == "circular")


def written_at(call: Call, cache: Tensor, update: Tensor, begins: Operand, axis: int, circular: bool = False) -> Tensor:
    """`cache` with rows of `update` along an axis, from rows `begins` [B] of each batch on; rows beyond it are lost."""
    batch, rows, count = cache.shape[0], cache.shape[axis], update.shape[axis]
    if tuple(begins.shape) != (batch,) or not is_integer(kind_of(begins)):
        raise call.node.unsupported(f"places {list(begins.shape)} to write at, expected {batch} integers")
    parts, behind = math.prod(cache.shape[:axis]), math.prod(cache.shape[axis + 1 :])
    call.stores(parts + rows)
    source, is_new = _new_rows(call, begins, rows, count, circular)
    if count > 1:
        first = np.arange(parts).reshape(batch, parts // batch, 1) * count
        places = call.reshape(int32(call, "Add", source, first), (parts * rows,))
        flat = call.reshape(update, (parts * count, behind))
        update = call.op("Gather", [flat, places], (parts * rows, behind), {"axis": 0}, cache.kind)
        update = call.reshape(update, cache.shape)
    ones = [1] * len(cache.shape)
    return replaced(call, cache, call.reshape(is_new, (batch, *ones[1:axis], rows, *ones[axis + 1 :])), update)


def _new_rows(call: Call, begins: Operand, rows: int, count: int, circular: bool) -> tuple[Tensor, Tensor]:
    """[B, 1, S]: the one of `count` new rows that is for each place, or is the nearest; and 1 where it is for it."""
    at = int32(call, "Sub", np.arange(rows), call.reshape(call.as_tensor(begins), (*begins.shape, 1, 1)))
    if circular:  # it is from -S on, if the place is in the cache
        at = int32(call, "Add", at, int32(call, "Mul", int32(call, "Less", at, whole(0)), whole(rows)))
    nearest = int32(call, "Max", int32(call, "Min", at, whole(count - 1)), whole(0))
    return nearest, int32(call, "Equal", at, nearest)
