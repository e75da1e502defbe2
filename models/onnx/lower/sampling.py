"""Elements between those of an image, at places that the network computes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call
from .elementwise import binary, number, unary
from .gather import check_places
from .integers import int32, to_integers
from .shape import strided

_FEW = 16  # channels that are not worth turning the image for


def sampled(call: Call, x: Tensor, at: Tensor, zeros: bool, nearest: bool = False, combine: str = "Add") -> Tensor:
    """x [N, C, ..] at places [axes, N, count], the last axis of x first, as [N, C, count].

    Beyond the ends lie zeros, or else the places are inside. The corners of a cell are added up, or another op combines
    them.
    """
    first = unary(call, "Round" if nearest else "Floor", at)
    if nearest:
        return combined(call, x, [(first, None)], zeros)
    share = binary(call, "Sub", at, first)
    ends = [(first, binary(call, "Sub", number(1), share)), (binary(call, "Add", first, number(1)), share)]
    return combined(call, x, ends, zeros, combine)


def combined(
    call: Call, x: Tensor, taps: Sequence[tuple[Tensor, Tensor | None]], zeros: bool, combine: str = "Add"
) -> Tensor:
    """x [N, C, ..] as [N, C, count], put together from elements with their weights.

    Each tap is a place, a whole number, on every axis [axes, N, count], and a weight, or None for 1. Pixels are rows
    of channels, of which a Gather takes one for each tap on each axis; few channels of one image stay planes.
    """
    (batch, channels, *sizes), count = x.shape, taps[0][0].shape[2]
    check_places(call, batch * max(math.prod(sizes), count))
    ends = [_end(call, place, share, sizes, zeros) for place, share in taps]
    planes = call.reshape(x, (batch, channels, math.prod(sizes)))
    flat = batch == 1 and channels < _FEW
    if flat:
        source, axis, shape = call.reshape(planes, (channels, math.prod(sizes))), 1, (channels, count)
    else:
        rows = call.transpose(planes, (0, 2, 1))
        source, axis, shape = call.reshape(rows, (batch * math.prod(sizes), channels)), 0, (batch * count, channels)
    parts = []
    for corner in itertools.product(ends, repeat=len(sizes)):
        places = functools.reduce(functools.partial(int32, call, "Add"), [end[0][i] for i, end in enumerate(corner)])
        part = call.op("Gather", [source, call.reshape(places, (batch * count,))], shape, {"axis": axis})
        if shares := [end[1][i] for i, end in enumerate(corner) if end[1]]:
            weight = functools.reduce(functools.partial(binary, call, "Mul"), shares)
            part = binary(call, "Mul", part, call.reshape(weight, (1, count) if flat else (batch * count, 1)))
        parts.append(call.reshape(part, (math.prod(shape),)))  # kernels are quickest along a long last axis
    y = functools.reduce(functools.partial(binary, call, combine), parts)
    if flat:
        return call.reshape(y, (batch, channels, count))
    return call.transpose(call.reshape(y, (batch, count, channels)), (0, 2, 1))


def by_axis(sizes: Sequence[int]) -> NDArray[np.float32]:
    """What [axes, N, count] repeats, the last axis first."""
    return np.asarray(sizes[::-1], np.float32).reshape(-1, 1, 1)


def within(call: Call, at: Tensor, extents: NDArray[np.float32]) -> Tensor:
    """The nearest places inside of axes."""
    return binary(call, "Min", binary(call, "Max", at, number(0)), extents - 1)


def _end(
    call: Call, at: Tensor, share: Tensor | None, sizes: Sequence[int], zeros: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """For one end of the cells on each axis: places that add up to those of pixels, and weights, none if all are 1."""
    near = within(call, at, by_axis(sizes))
    if zeros:
        inside = binary(call, "Equal", near, at)
        share = inside if share is None else binary(call, "Mul", share, inside)
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    places = int32(call, "Mul", to_integers(call, near), by_axis(steps).astype(np.int64))
    if at.shape[1] > 1:
        of_batch = np.zeros((len(sizes), call.places(at.shape[1]), 1), np.int64)
        of_batch[0, :, 0] = np.arange(at.shape[1]) * math.prod(sizes)
        places = int32(call, "Add", places, of_batch)
    return _each(call, places), [] if share is None else _each(call, share)


def _each(call: Call, x: Tensor) -> list[Tensor]:
    return [strided(call, x, [i, 0, 0], [1, 1, 1], [1, *x.shape[1:]]) for i in range(x.shape[0])]
