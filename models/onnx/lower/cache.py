"""TensorScatter, and caches of keys and values that a network updates without being given any memory of its own."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, Operand, lowers
from .integers import int32, kind_of
from .shape import take


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
    before, behind = math.prod(x.shape[1:axis]), math.prod(x.shape[axis + 1 :])
    parts = [call.reshape(part, (x.shape[0], before, part.shape[axis], behind)) for part in (x, update)]
    return call.reshape(written_at(call, parts[0], parts[1], begins, mode == "circular"), x.shape)


def written_at(call: Call, cache: Tensor, update: Tensor, begins: Operand, circular: bool = False) -> Tensor:
    """cache [B, P, S, n] with the rows of `update` [B, P, L, n] from rows `begins` [B] on; what is beyond S is lost."""
    (batch, parts, rows, width), count = cache.shape, update.shape[2]
    if tuple(begins.shape) != (batch,) or not is_integer(kind_of(begins)):
        raise call.node.unsupported(f"places {list(begins.shape)} to write at, expected {batch} integers")
    call.stores(2 * batch * parts * rows)
    lead = np.arange(batch * parts).reshape(batch, parts, 1)
    own, first = lead * rows + np.arange(rows), lead * count + batch * parts * rows
    both = call.op(
        "Concat",
        [call.reshape(part, (batch * parts * part.shape[2], width)) for part in (cache, update)],
        (batch * parts * (rows + count), width),
        {"axis": 0},
        cache.kind,
    )
    if not isinstance(begins, Tensor):
        step = np.arange(rows) - begins.reshape(batch, 1, 1)
        step = step % rows if circular else step
        source = np.where((step >= 0) & (step < count), first + step, own)
        return call.reshape(take(call, both, source.reshape(-1), 0), cache.shape)
    at = int32(call, "Sub", np.arange(rows), call.reshape(begins, (batch, 1, 1)))
    if circular:  # the step before is from -S on, if the place is in the cache
        at = int32(call, "Add", at, int32(call, "Mul", int32(call, "Less", at, np.asarray(0)), np.asarray(rows)))
    inside = int32(call, "Mul", int32(call, "Less", np.asarray(-1), at), int32(call, "Less", at, np.asarray(count)))
    news = int32(call, "Add", at, first)
    chosen = call.op("Where", [inside, news, call.source(own)], own.shape, result="int")
    places = call.reshape(chosen, (own.size,))
    return call.reshape(call.op("Gather", [both, places], (own.size, width), {"axis": 0}, cache.kind), cache.shape)
