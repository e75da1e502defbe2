"""The places of the largest elements that MaxPool finds, and MaxUnpool, which puts elements back there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, lowers, within_float32
from .elementwise import binary
from .integers import int32, to_floats
from .reduce import best
from .shape import take
from .window import Axis, of_rank, places_of

_MAX_SHIFTS = 64  # windows that an element lies in


def largest_with_places(call: Call, x: Tensor, axes: Sequence[Axis]) -> list[Tensor]:
    """The largest element of each window, and its place among all elements of x; of equal ones the first."""
    if call.int_attr("storage_order", 0) not in (0, 1):
        raise call.node.unsupported(f"storage_order {call.attr('storage_order')}")
    order: Literal["C", "F"] = "F" if call.int_attr("storage_order", 0) else "C"
    sizes, out = x.shape[2:], [axis.out for axis in axes]
    planes, plane, taps, count = (
        math.prod(x.shape[:2]),
        math.prod(sizes),
        math.prod(a.kernel for a in axes),
        math.prod(out),
    )
    call.stores(taps * count * 2)
    places, inside = (table.reshape(taps, count) for table in places_of(axes, [1] * len(axes)))
    flat = call.reshape(x, (planes, plane))
    if not inside.all():  # the padding is one more element, below all others
        below = {"begins": [0, 0], "value": within_float32(-math.inf)}
        flat = call.op("Pad", [flat], (planes, plane + 1), below)
        places = np.where(inside, places, plane)
    windows = call.reshape(take(call, flat, places.reshape(-1), 1), (planes, taps, count))
    values, tap = best(call, windows, 1, 1, True)
    row = int32(call, "Add", int32(call, "Mul", tap, np.asarray(count)), np.arange(count))
    numbered = np.ravel_multi_index(np.unravel_index(np.minimum(places, plane - 1), sizes), sizes, order=order)
    table = call.emit.weight(numbered.reshape(-1), "int32")
    found = call.op("Gather", [table, call.reshape(row, (planes * count,))], (planes * count,), {"axis": 0}, "int")
    of_plane = np.arange(call.places(planes))[:, None] * plane
    index = int32(call, "Add", call.reshape(found, (planes, count)), of_plane)
    shape = (*x.shape[:2], *out)
    return [call.reshape(values, shape), call.reshape(index, shape)]


@lowers("MaxUnpool")
def max_unpool(call: Call) -> Tensor:
    """Each result looks at the windows that it lies in: whether the place of one's element is its own."""
    x, index = call.floats(0), call.tensor(1)
    rank = len(x.shape) - 2
    kernel = of_rank(call, "kernel_shape", rank, 0)
    strides, pads = of_rank(call, "strides", rank, 1), of_rank(call, "pads", 2 * rank, 0)
    if index.shape != x.shape or not is_integer(index.kind) or rank not in (1, 2, 3) or min(*kernel, *strides) < 1:
        raise call.node.unsupported(f"places {list(index.shape)} of elements {list(x.shape)}, a kernel {kernel}")
    sizes = [(size - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i] for i, size in enumerate(x.shape[2:])]
    planes, count, plane = math.prod(x.shape[:2]), math.prod(x.shape[2:]), math.prod(sizes)
    if min(sizes) < 1:
        raise call.node.unsupported(f"a result of the shape {[*x.shape[:2], *sizes]}")
    steps = [range(-(-kernel[i] // strides[i])) for i in range(rank)]
    if math.prod(map(len, steps)) > _MAX_SHIFTS:
        raise call.node.unsupported(
            f"a kernel {kernel} with strides {strides}: elements in more than {_MAX_SHIFTS} windows"
        )
    call.stores(plane * math.prod(map(len, steps)))
    flat, places = (call.reshape(part, (planes, count)) for part in (x, index))
    places = int32(call, "Sub", places, np.arange(call.places(planes))[:, None] * plane)
    own = np.arange(call.places(plane))
    y: Tensor | None = None
    # Windows in their order, because the last one that names a place has it.
    for back in itertools.product(*(reversed(step) for step in steps)):
        window, there = np.zeros([1] * rank, np.int64), np.ones([1] * rank, bool)
        for i, size in enumerate(x.shape[2:]):
            at = (np.arange(sizes[i]) + pads[i]) // strides[i] - back[i]
            at = at.reshape([-1 if j == i else 1 for j in range(rank)])
            there, window = there & (at >= 0) & (at < size), window * size + np.clip(at, 0, size - 1)
        wanted = np.where(there.reshape(-1), own, -1)
        same = int32(call, "Equal", take(call, places, window.reshape(-1), 1), wanted)
        value = take(call, flat, window.reshape(-1), 1)
        if y is None:
            y = binary(call, "Mul", value, to_floats(call, same))
        else:
            y = call.op("Where", [to_floats(call, same), value, y], y.shape)
    assert y is not None
    y = call.reshape(y, (*x.shape[:2], *sizes))
    if not call.has(2):
        return y
    shape = call.ints(2, "the output_shape")
    if len(shape) != len(y.shape) or any(extent < own for extent, own in zip(shape, y.shape, strict=True)):
        raise call.node.unsupported(f"output_shape {shape}; expected at least {list(y.shape)}")
    return y if tuple(shape) == y.shape else call.op("Pad", [y], shape, {"begins": [0] * len(shape), "value": 0.0})
