"""DeformConv: a product of the weight and what lies where the offsets say."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor
from ..table import Call, lowers
from .conv import by_product, check_groups
from .elementwise import binary
from .sampling import sampled
from .shape import strided
from .window import check_kernel, windows

_MAX_PLACES = 1 << 24


@lowers("DeformConv")
def deform_conv(call: Call) -> Tensor:
    x, weight, offset, parts = call.floats(0), call.operand(1), call.floats(2), call.int_attr("offset_group", 1)
    groups = check_groups(call, x, weight.shape[0] if weight.shape else 0)
    check_kernel(call, weight.shape[2:])
    n, channels, taps = x.shape[0], x.shape[1], math.prod(weight.shape[2:])
    axes = windows(call, x.shape[2:], weight.shape[2:])
    out = [axis.out for axis in axes]
    count = taps * math.prod(out)
    if len(axes) != 2 or weight.shape[1] * groups != channels or parts < 1 or channels % parts:
        raise call.node.unsupported(f"a weight {list(weight.shape)} for an input {list(x.shape)} in {parts} parts")
    if offset.shape != (n, parts * taps * 2, *out):
        raise call.node.unsupported(f"offsets {list(offset.shape)}, expected {[n, parts * taps * 2, *out]}")
    if count > _MAX_PLACES:
        raise call.node.unsupported(f"{count} places; the limit is {_MAX_PLACES}")
    # [.., taps, y and x, results] as [x and y, .., taps and results].
    places = call.transpose(call.reshape(offset, (n * parts, taps, 2, count // taps)), (2, 0, 1, 3))
    places = call.reshape(places, (2, n * parts, count))
    places = strided(call, places, [1, 0, 0], [-1, 1, 1], [2, n * parts, count])
    call.stores(2 * count)
    own = [np.arange(a.kernel)[:, None] * a.dilation + np.arange(a.out) * a.stride - a.pad for a in axes]
    down, across = own[0][:, None, :, None], own[1][None, :, None, :]
    grid = np.stack(np.broadcast_arrays(across, down)).reshape(2, 1, count).astype(np.float32)
    wide = call.reshape(x, (n * parts, channels // parts, *x.shape[2:]))
    values = sampled(call, wide, binary(call, "Add", places, grid), True)
    if call.has(4):
        values = binary(call, "Mul", values, call.reshape(call.floats(4), (n * parts, 1, count)))
    columns = call.reshape(values, (n, channels, taps, count // taps))
    return by_product(call, call.as_tensor(weight), columns, groups, out, 3)
