"""Constant places that fill a box of an array: what exports write for `x[:, 1:, 1:]` and for assignments to it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call
from .shape import strided

_MAX_INDICES = 1 << 24  # that are looked at


class Box(NamedTuple):
    """The first axes of an array from `starts` on, `extents` of each; whole axes behind them."""

    starts: list[int]
    extents: list[int]


def box_of(indices: NDArray[np.int64]) -> Box | None:
    """The box whose places [..., axes], counted from the front, are listed in order; None if they fill none."""
    if indices.size > _MAX_INDICES:
        return None
    places = indices.reshape(-1, indices.shape[-1])
    starts = places.min(axis=0)
    extents = [int(extent) for extent in places.max(axis=0) - starts + 1]
    if math.prod(extents) != len(places):
        return None
    steps = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
    if not np.array_equal((places - starts) @ np.asarray(steps), np.arange(len(places))):
        return None
    return Box(starts.tolist(), extents)


def boxed(call: Call, x: Tensor, box: Box) -> Tensor:
    """What x has in a box."""
    rest = x.shape[len(box.starts) :]
    return strided(call, x, [*box.starts, *[0] * len(rest)], [1] * len(x.shape), [*box.extents, *rest])


def with_box(call: Call, x: Tensor, box: Box, news: Tensor) -> Tensor:
    """x, but `news` in a box. The last axis grows first, so that the largest copies are of whole rows."""
    rank, depth = len(x.shape), len(box.starts)
    starts, extents = [*box.starts, *[0] * (rank - depth)], [*box.extents, *x.shape[depth:]]
    grown = call.reshape(news, extents)
    for axis in reversed(range(depth)):
        begin, end = starts[axis], starts[axis] + extents[axis]
        starts[axis] = 0
        parts = []
        for first, count in ((0, begin), (end, x.shape[axis] - end)):
            at, sizes = [*starts], [*extents]
            at[axis], sizes[axis] = first, count
            parts.append(strided(call, x, at, [1] * rank, sizes) if count else None)
        extents[axis] = x.shape[axis]
        beside = [part for part in (parts[0], grown, parts[1]) if part is not None]
        if len(beside) > 1:
            grown = call.op("Concat", beside, extents, {"axis": axis}, x.kind)
    return grown
