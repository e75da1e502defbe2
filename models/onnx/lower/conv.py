"""Conv and ConvTranspose."""

from __future__ import annotations

import math

import numpy as np

from ...common.packing import is_quantized
from ..emit import Tensor
from ..table import Call, Constant, lowers
from .elementwise import binary
from .matmul import product
from .shape import take
from .window import Axis, attributes, check_kernel, check_rank, of_rank, places_of, planar, windows

_GROUP = 64


@lowers("Conv")
def conv(call: Call) -> Tensor:
    x, weight = call.floats(0), call.operand(1)
    groups = _groups(call, x, weight.shape[0] if weight.shape else 0)
    if len(weight.shape) != len(x.shape) or weight.shape[1] * groups != x.shape[1] or 0 in weight.shape:
        raise call.node.unsupported(f"a weight {list(weight.shape)} for an input {list(x.shape)} in {groups} groups")
    check_kernel(call, weight.shape[2:])
    axes = windows(call, x.shape[2:], weight.shape[2:])
    if isinstance(weight, Tensor):
        return _by_computed(call, x, call.as_floats(weight, "the weight"), groups, axes)
    return _emit(call, x, weight, groups, axes, [1] * len(axes))


@lowers("ConvTranspose")
def conv_transpose(call: Call) -> Tensor:
    x, weight = call.floats(0), call.constant(1, "the weight of a convolution")
    rank = len(x.shape) - 2
    check_rank(call, rank)
    groups = call.int_attr("group", 1)
    if (
        groups < 1
        or weight.ndim != len(x.shape)
        or weight.shape[0] != x.shape[1]
        or x.shape[1] % groups
        or 0 in weight.shape
    ):
        raise call.node.unsupported(f"a weight {list(weight.shape)} for an input {list(x.shape)} in {groups} groups")
    check_kernel(call, weight.shape[2:])
    strides, dilations = of_rank(call, "strides", rank, 1), of_rank(call, "dilations", rank, 1)
    pads, extra = of_rank(call, "pads", 2 * rank, 0), of_rank(call, "output_padding", rank, 0)
    auto = call.attr("auto_pad", "NOTSET") or "NOTSET"
    wanted = call.attr("output_shape")
    axes = []
    for i in range(rank):
        kernel = weight.shape[2 + i]
        span = (kernel - 1) * dilations[i] + 1
        full = strides[i] * (x.shape[2 + i] - 1) + extra[i] + span
        begin, end = pads[i], pads[i + rank]
        if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
            out = list(wanted)[-rank:][i] if wanted is not None else x.shape[2 + i] * strides[i]
            total = full - out
            begin = total // 2 if auto != "SAME_LOWER" else total - total // 2
            if wanted is not None and auto != "SAME_UPPER":
                begin = total - total // 2
            if auto == "SAME_UPPER":
                begin = total // 2
            end = total - begin
        out = full - begin - end
        # A convolution with the kernel turned round, over the input with stride - 1 zeros between its elements.
        axes.append(Axis(x.shape[2 + i], out, kernel, 1, (kernel - 1) * dilations[i] - begin, 0, dilations[i]))
    channels = x.shape[1] // groups
    turned = np.flip(weight, tuple(range(2, weight.ndim))).reshape(groups, channels, *weight.shape[1:])
    turned = turned.swapaxes(1, 2).reshape(groups * weight.shape[1], channels, *weight.shape[2:])
    return _emit(call, x, turned, groups, axes, strides)


def _groups(call: Call, x: Tensor, outputs: int) -> int:
    groups = call.int_attr("group", 1)
    if len(x.shape) < 3 or groups < 1 or x.shape[1] % groups or outputs % groups:
        raise call.node.unsupported(f"{groups} groups of an input {list(x.shape)} and {outputs} outputs")
    return groups


def _emit(call: Call, x: Tensor, weight: Constant, groups: int, axes: list[Axis], upsample: list[int]) -> Tensor:
    outputs = weight.shape[0]
    bias = np.asarray(call.constant(2, "the bias of a convolution")) if call.has(2) else None
    if bias is not None and bias.shape != (outputs,):
        raise call.node.unsupported(f"a bias {list(bias.shape)} for {outputs} outputs")
    shape = (x.shape[0], outputs, *(axis.out for axis in axes))
    if len(axes) == 3:
        x = _layers(call, x, axes[0], upsample[0])
        axes, upsample = axes[1:], upsample[1:]
    rows = np.asarray(weight).reshape(outputs, -1)
    # Few terms are not quantised: docs/numerics.md section 11.
    packed = is_quantized(call.emit.profile.body_format) and groups == 1 and rows.shape[1] >= _GROUP
    operands: list[Tensor | int] = [
        call.reshape(x, planar(x.shape)),
        call.emit.matrix(rows) if packed else call.emit.weight(rows),
    ]
    if bias is not None:
        operands.append(call.emit.weight(bias, "float32"))
    out = (x.shape[0], outputs, *(axis.out for axis in axes))
    y = call.op("Conv", operands, planar(out), attributes(axes, upsample) | {"groups": groups})
    if len(shape) == 5:
        y = call.transpose(call.reshape(y, (shape[0], shape[2], outputs, *out[2:])), (0, 2, 1, 3, 4))
    return call.reshape(y, shape)


def _by_computed(call: Call, x: Tensor, weight: Tensor, groups: int, axes: list[Axis]) -> Tensor:
    """A product of the weight that the network computes and what each result reads, which is gathered."""
    n, channels, outputs = x.shape[0], x.shape[1], weight.shape[0]
    taps, count = math.prod(weight.shape[2:]), math.prod(axis.out for axis in axes)
    call.places(taps * count)
    size = math.prod(axis.size for axis in axes)
    places, inside = places_of(axes)
    places = np.where(inside, places, size)  # behind the last lie zeros
    flat = call.reshape(x, (n, channels, size))
    if not inside.all():
        flat = call.op("Pad", [flat], (n, channels, size + 1), {"begins": [0] * 3, "value": 0.0})
    columns = call.reshape(take(call, flat, places.reshape(-1), 2), (n, groups, channels // groups * taps, count))
    rows = call.reshape(weight, (1, groups, outputs // groups, channels // groups * taps))
    y = call.reshape(product(call, rows, columns), (n, outputs, count))
    if call.has(2):
        bias = call.operand(2)
        shape = (1, outputs, 1)
        y = binary(call, "Add", y, call.reshape(bias, shape) if isinstance(bias, Tensor) else bias.reshape(shape))
    return call.reshape(y, (n, outputs, *(axis.out for axis in axes)))


def _layers(call: Call, x: Tensor, axis: Axis, upsample: int) -> Tensor:
    """[N, C, D, H, W] as [N * results, C * taps, H, W]: of the first of three axes, what each result reads."""
    call.places(axis.out * axis.kernel)
    places = np.arange(axis.out)[:, None] * axis.stride + np.arange(axis.kernel) * axis.dilation - axis.pad
    inside = (places >= 0) & (places < axis.size * upsample) & (places % upsample == 0)
    places = np.where(inside, places // upsample, axis.size)  # behind the last lie zeros
    n, channels, _, *plane = x.shape
    if not inside.all():
        x = call.op("Pad", [x], (n, channels, axis.size + 1, *plane), {"begins": [0] * 5, "value": 0.0})
    if not np.array_equal(places.reshape(-1), np.arange(x.shape[2])):
        x = take(call, x, places.reshape(-1), 2)
    x = call.transpose(call.reshape(x, (n, channels, axis.out, axis.kernel, *plane)), (0, 2, 1, 3, 4, 5))
    return call.reshape(x, (n * axis.out, channels * axis.kernel, *plane))
