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


def sampled(call: Call, x: Tensor, at: Tensor, zeros: bool, nearest: bool = False) -> Tensor:
    """x [N, C, ..] at places [N, count, axes], the last axis first, as [N, C, count].

    Pixels are rows of channels, of which a Gather takes one for each corner of the cells that the places lie in. Beyond
    the ends lie zeros, or else the places are inside.
    """
    (batch, channels, *sizes), count = x.shape, at.shape[1]
    check_places(call, batch * max(math.prod(sizes), count))
    first = unary(call, "Round" if nearest else "Floor", at)
    ends = [_end(call, first, None, sizes, zeros)]
    if not nearest:
        share = binary(call, "Sub", at, first)
        ends = [
            _end(call, first, binary(call, "Sub", number(1), share), sizes, zeros),
            _end(call, binary(call, "Add", first, number(1)), share, sizes, zeros),
        ]
    pixels = call.transpose(call.reshape(x, (batch, channels, math.prod(sizes))), (0, 2, 1))
    rows = call.reshape(pixels, (batch * math.prod(sizes), channels))
    parts = []
    for corner in itertools.product(ends, repeat=len(sizes)):
        places = functools.reduce(functools.partial(int32, call, "Add"), [end[0][i] for i, end in enumerate(corner)])
        shape = (batch * count, channels)
        part = call.op("Gather", [rows, call.reshape(places, shape[:1])], shape, {"axis": 0})
        if shares := [end[1][i] for i, end in enumerate(corner) if end[1]]:
            weight = functools.reduce(functools.partial(binary, call, "Mul"), shares)
            part = binary(call, "Mul", part, call.reshape(weight, (batch * count, 1)))
        parts.append(part)
    y = functools.reduce(functools.partial(binary, call, "Add"), parts)
    return call.transpose(call.reshape(y, (batch, count, channels)), (0, 2, 1))


def _end(
    call: Call, at: Tensor, share: Tensor | None, sizes: Sequence[int], zeros: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """For one end of the cells on each axis: places that add up to those of rows, and weights, none if all are 1."""
    near = within(call, at, np.float32(sizes[::-1]))
    if zeros:
        inside = binary(call, "Equal", near, at)
        share = inside if share is None else binary(call, "Mul", share, inside)
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))][::-1]
    places = int32(call, "Mul", to_integers(call, near), np.asarray(steps))
    if at.shape[0] > 1:
        of_batch = np.zeros((call.places(at.shape[0]), 1, len(sizes)), np.int64)
        of_batch[:, 0, 0] = np.arange(at.shape[0]) * math.prod(sizes)
        places = int32(call, "Add", places, of_batch)
    return _columns(call, places), [] if share is None else _columns(call, share)


def _columns(call: Call, x: Tensor) -> list[Tensor]:
    return [strided(call, x, [0, 0, i], [1, 1, 1], [*x.shape[:2], 1]) for i in range(x.shape[2])]


def within(call: Call, at: Tensor, row: NDArray[np.float32]) -> Tensor:
    """The nearest places inside of axes of `row` elements."""
    return binary(call, "Min", binary(call, "Max", at, number(0)), row - 1)
