"""Slice, also from a computed place on, as `table[offset : offset + 4]` writes it."""

from __future__ import annotations

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, constant_dtype, lowers
from .integers import int32
from .shape import strided, take


@lowers("Slice")
def slice_(call: Call) -> Operand:
    x = call.tensor(0)
    rank = len(x.shape)
    begins, ends = call.sums(1, "the starts"), call.sums(2, "the ends")
    axes = call.ints(3, "the axes") if call.has(3) else list(range(len(begins)))
    steps = call.ints(4, "the steps") if call.has(4) else [1] * len(begins)
    if not len(begins) == len(ends) == len(axes) == len(steps):
        raise call.node.unsupported("starts, ends, axes and steps of different lengths")
    starts, strides, extents = [0] * rank, [1] * rank, list(x.shape)
    computed: dict[int, tuple[Tensor, np.ndarray]] = {}  # by axis where it starts, and the places from there on
    for (source, begin), (other, end), axis, step in zip(begins, ends, axes, steps, strict=True):
        i = call.axis(axis, rank)
        if step == 0:
            raise call.node.unsupported("a step of 0")
        if source is None and other is None:
            first, last, step = slice(begin, end, step).indices(x.shape[i])
            starts[i], strides[i], extents[i] = first, step, len(range(first, last, step))
            continue
        if source is None or source != other or step < 0:
            raise call.node.unsupported(
                "its bounds are computed by the network; expected constants, or an end that is its start plus a "
                "constant, and a step above 0"
            )
        count = len(range(begin, end, step))
        if end - begin > x.shape[i]:
            raise call.node.unsupported(f"{end - begin} elements from a computed place on, of an axis of {x.shape[i]}")
        if count:
            computed[i] = source, begin + step * np.arange(call.places(count))
        else:
            extents[i] = 0
    if 0 in extents:  # for a Concat that leaves it out again
        return np.zeros(extents, constant_dtype(x.kind))
    x = strided(call, x, starts, strides, extents)
    for i, (source, places) in computed.items():
        x = take(call, x, int32(call, "Add", source, places), i)
    return x
