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
    if not np.array_equal(np.ravel_multi_index(tuple((places - starts).T), extents), np.arange(len(places))):
        return None
    return Box(starts.tolist(), extents)


def boxed(call: Call, x: Tensor, box: Box) -> Tensor:
    """What x has in a box."""
    rest = x.shape[len(box.starts) :]
    return strided(call, x, [*box.starts, *[0] * len(rest)], [1] * len(x.shape), [*box.extents, *rest])


def with_box(call: Call, x: Tensor, box: Box, news: Tensor) -> Tensor:
    """x, but `news` in a box. The last axis grows first, so that the largest copies are of whole rows."""
    rest = x.shape[len(box.starts) :]
    starts, extents = [*box.starts, *[0] * len(rest)], [*box.extents, *rest]
    grown = call.reshape(news, extents)

    def beside(axis: int, first: int, count: int) -> list[Tensor]:
        at, sizes = [*starts], [*extents]
        at[axis], sizes[axis] = first, count
        return [strided(call, x, at, [1] * len(at), sizes)] if count else []

    for axis in reversed(range(len(box.starts))):
        begin, end = starts[axis], starts[axis] + extents[axis]
        parts = [*beside(axis, 0, begin), grown, *beside(axis, end, x.shape[axis] - end)]
        starts[axis], extents[axis] = 0, x.shape[axis]
        if len(parts) > 1:
            grown = call.op("Concat", parts, extents, {"axis": axis}, x.kind)
    return grown
