"""Gather and GatherND."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor
from ..table import Call, lowers
from .shape import take


@lowers("Gather")
def gather(call: Call) -> Tensor:
    x, indices = call.operand(0), call.operand(1)
    axis = call.axis(call.int_attr("axis", 0), len(x.shape))
    if isinstance(indices, Tensor):
        if indices.kind != "int":
            raise call.node.unsupported("indices that are no integers")
        places: Tensor | int = call.reshape(indices, (math.prod(indices.shape),))
    else:
        flat = np.asarray(indices).reshape(-1)
        if flat.size == 0 or flat.min() < -x.shape[axis] or flat.max() >= x.shape[axis]:
            raise call.node.unsupported(f"indices beyond axis {axis} of {list(x.shape)}, or none")
        places = call.emit.weight(flat, "int32")
    kind = (
        call.as_tensor(x).kind
        if not isinstance(x, Tensor) and x.ndim > 4
        else (x.kind if isinstance(x, Tensor) else ("float" if x.dtype.kind in "fb" else "int"))
    )
    count = math.prod(indices.shape)
    y = call.op(
        "Gather", [call.source(x), places], (*x.shape[:axis], count, *x.shape[axis + 1 :]), {"axis": axis}, kind
    )
    return call.reshape(y, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@lowers("GatherND")
def gather_nd(call: Call) -> Tensor:
    """The axes that indices count become one, and every index a place on it."""
    x, indices = call.tensor(0), np.asarray(call.constant(1, "the tensor of indices"))
    lead, depth = call.int_attr("batch_dims", 0), indices.shape[-1] if indices.ndim else 0
    counted = x.shape[lead : lead + depth]
    if (
        not 0 <= lead < indices.ndim
        or not 0 < depth <= len(x.shape) - lead
        or indices.shape[:lead] != x.shape[:lead]
        or indices.dtype.kind not in "iu"
    ):
        raise call.node.unsupported(f"indices {list(indices.shape)} with {lead} batch_dims for {list(x.shape)}")
    if indices.size == 0 or (indices < np.negative(counted)).any() or (indices >= counted).any():
        raise call.node.unsupported(f"indices beyond axes {lead} to {lead + depth - 1} of {list(x.shape)}, or none")
    call.places(indices.size)
    steps = [math.prod(counted[i + 1 :]) for i in range(depth)]
    places = (indices.astype(np.int64) % counted) @ np.int64(steps)
    batches = np.arange(math.prod(x.shape[:lead])).reshape((*x.shape[:lead], *[1] * (places.ndim - lead)))
    places = places + batches * math.prod(counted)
    rest = x.shape[lead + depth :]
    rows = call.reshape(x, (math.prod(x.shape[: lead + depth]), *rest))
    return call.reshape(take(call, rows, places.reshape(-1), 0), (*indices.shape[:-1], *rest))
