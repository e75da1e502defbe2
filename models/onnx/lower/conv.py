"""Conv and ConvTranspose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tcim_lite.hmm.weight_format import GROUP, PACKED_CONV_OUTPUTS, PACKED_CONV_PIXELS, PACKED_CONV_TERMS

from ...weights.packing import is_quantized
from ..emit import Tensor
from ..table import Call, Constant, lowers
from .elementwise import binary
from .matmul import float_linear, linear, product
from .shape import strided, take
from .window import Axis, attributes, check_kernel, check_rank, of_rank, places_of, planar, windows

_MAX_TAPS = 1024  # of a weight that the network computes; each is an op


@lowers("Conv")
def conv(call: Call) -> Tensor:
    x, weight = call.floats(0), call.operand(1)
    groups = check_groups(call, x, weight.shape[0] if weight.shape else 0)
    if len(weight.shape) != len(x.shape) or weight.shape[1] * groups != x.shape[1] or 0 in weight.shape:
        raise call.node.unsupported(f"a weight {list(weight.shape)} for an input {list(x.shape)} in {groups} groups")
    check_kernel(call, weight.shape[2:])
    axes = windows(call, x.shape[2:], weight.shape[2:])
    if isinstance(weight, Tensor):
        return _by_computed(call, x, call.as_floats(weight, "the weight"), groups, axes, [1] * len(axes))
    weight, axes = _inside(weight, axes)
    return _emit(call, x, weight, groups, axes, [1] * len(axes))


def _inside(weight: Constant, axes: Sequence[Axis]) -> tuple[Constant, list[Axis]]:
    """Without taps at the ends of the kernel that read padding alone, as dilations beyond a small input have them."""
    kept, cut = list[Axis](), [slice(None), slice(None)]
    for axis in axes:
        reach = (axis.out - 1) * axis.stride - axis.pad
        first = min(max(-(reach // axis.dilation), 0), axis.kernel - 1)
        end = max(min(-(-(axis.size + axis.pad) // axis.dilation), axis.kernel), first + 1)
        cut.append(slice(first, end))
        kept.append(replace(axis, kernel=end - first, pad=axis.pad - first * axis.dilation))
    return weight[tuple(cut)], kept


@lowers("ConvTranspose")
def conv_transpose(call: Call) -> Tensor:
    x, weight = call.floats(0), call.operand(1)
    rank = len(x.shape) - 2
    check_rank(call, rank)
    groups = call.int_attr("group", 1)
    if (
        groups < 1
        or len(weight.shape) != len(x.shape)
        or weight.shape[0] != x.shape[1]
        or x.shape[1] % groups
        or 0 in weight.shape
    ):
        raise call.node.unsupported(f"a weight {list(weight.shape)} for an input {list(x.shape)} in {groups} groups")
    check_kernel(call, weight.shape[2:])
    strides, dilations = of_rank(call, "strides", rank, 1), of_rank(call, "dilations", rank, 1)
    pads, extra = of_rank(call, "pads", 2 * rank, 0), of_rank(call, "output_padding", rank, 0)
    if min(strides + dilations) < 1 or min(pads + extra) < 0:
        raise call.node.unsupported("a stride or dilation below 1, or a pad below 0")
    auto, wanted = call.attr("auto_pad", "NOTSET") or "NOTSET", call.attr("output_shape")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise call.node.unsupported(f"auto_pad {auto!r:.40}")
    if auto == "VALID":
        pads = [0] * (2 * rank)
    if wanted is not None:  # older files have the axes before too
        whole = rank + 2 if isinstance(wanted, (list, tuple)) and len(wanted) == rank + 2 else rank
        wanted = of_rank(call, "output_shape", whole, 0)[-rank:]
    begins, outs = [], []
    for i in range(rank):
        full = strides[i] * (x.shape[2 + i] - 1) + extra[i] + (weight.shape[2 + i] - 1) * dilations[i] + 1
        begin, end = pads[i], pads[i + rank]
        if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
            out = wanted[i] if wanted is not None else x.shape[2 + i] * strides[i]
            total = max(full - out, 0)  # a longer output_shape adds zeros at the end
            begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
            end = full - out - begin
        begins.append(begin)
        outs.append(full - begin - end)
    if not isinstance(weight, Tensor) and all(1 in pair for pair in zip(strides, dilations, strict=True)):
        return _by_remainder(call, x, weight, groups, begins, outs)
    # A convolution with the kernel turned round, over the input with stride - 1 zeros between its elements.
    axes = [
        Axis(size, out, kernel, 1, (kernel - 1) * dilation - begin, 0, dilation)
        for size, out, kernel, dilation, begin in zip(
            x.shape[2:], outs, weight.shape[2:], dilations, begins, strict=True
        )
    ]
    channels = x.shape[1] // groups
    if isinstance(weight, Tensor):
        return _by_computed(call, x, _turned(call, call.as_floats(weight), groups), groups, axes, strides)
    turned = np.flip(weight, tuple(range(2, weight.ndim))).reshape(groups, channels, *weight.shape[1:])
    turned = turned.swapaxes(1, 2).reshape(groups * weight.shape[1], channels, *weight.shape[2:])
    return _emit(call, x, turned, groups, axes, strides)


def _by_remainder(
    call: Call, x: Tensor, weight: Constant, groups: int, begins: Sequence[int], outs: Sequence[int]
) -> Tensor:
    """A transposed convolution as one whose results with the same remainder by the stride are channels of their own.

    Each result reads every stride-th element of the kernel, so nothing is multiplied by zeros between the inputs.
    """
    rank, count = len(outs), weight.shape[1] * groups
    strides, dilations = of_rank(call, "strides", rank, 1), of_rank(call, "dilations", rank, 1)
    taps = [-(-size // stride) for size, stride in zip(weight.shape[2:], strides, strict=True)]
    rest = [tap * stride - size for tap, stride, size in zip(taps, strides, weight.shape[2:], strict=True)]
    split = [extent for pair in zip(taps, strides, strict=True) for extent in pair]
    parts = np.pad(weight, [(0, 0), (0, 0), *((0, more) for more in rest)])
    parts = parts.reshape(groups, -1, weight.shape[1], *split)
    parts = np.flip(parts, tuple(range(3, 3 + 2 * rank, 2)))
    of_tap, of_stride = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    parts = parts.transpose(0, 2, *of_stride, 1, *of_tap).reshape(count * math.prod(strides), -1, *taps)
    # Places on each axis, in whole strides, from the first to the last that has a result.
    firsts = [begin // stride for begin, stride in zip(begins, strides, strict=True)]
    lasts = [(begin + out - 1) // stride for begin, out, stride in zip(begins, outs, strides, strict=True)]
    axes = [
        Axis(size, last - first + 1, tap, 1, (tap - 1) * dilation - first, 0, dilation)
        for size, first, last, tap, dilation in zip(x.shape[2:], firsts, lasts, taps, dilations, strict=True)
    ]
    y = _emit(call, x, parts, groups, axes, [1] * rank, math.prod(strides))
    if max(strides) == 1:
        return y
    places = [axis.out for axis in axes]
    y = call.reshape(y, (x.shape[0] * count, *strides, *places))
    y = call.transpose(y, [0, *(at for i in range(rank) for at in (1 + rank + i, 1 + i))])
    whole = [place * stride for place, stride in zip(places, strides, strict=True)]
    y = call.reshape(y, (x.shape[0], count, *whole))
    starts = [begin - first * stride for begin, first, stride in zip(begins, firsts, strides, strict=True)]
    if whole == list(outs):
        return y
    return strided(call, y, [0, 0, *starts], [1] * (2 + rank), [x.shape[0], count, *outs])


def _turned(call: Call, weight: Tensor, groups: int) -> Tensor:
    """The computed weight of a transposed convolution as that of a convolution."""
    inputs, outputs, *kernel = weight.shape
    starts, steps = [0, 0, *(size - 1 for size in kernel)], [1, 1, *[-1] * len(kernel)]
    weight = strided(call, weight, starts, steps, list(weight.shape))
    parts = call.reshape(weight, (groups, inputs // groups, outputs, *kernel))
    parts = call.transpose(parts, (0, 2, 1, *range(3, 3 + len(kernel))))
    return call.reshape(parts, (groups * outputs, inputs // groups, *kernel))


def check_groups(call: Call, x: Tensor, outputs: int) -> int:
    """The number of groups, which divides the channels of both sides."""
    groups = call.int_attr("group", 1)
    if len(x.shape) < 3 or groups < 1 or x.shape[1] % groups or outputs % groups:
        raise call.node.unsupported(f"{groups} groups of an input {list(x.shape)} and {outputs} outputs")
    return groups


def _emit(
    call: Call, x: Tensor, weight: Constant, groups: int, axes: list[Axis], upsample: list[int], repeats: int = 1
) -> Tensor:
    """The op; each number of the bias is of `repeats` outputs in a row."""
    outputs = weight.shape[0]
    bias = np.asarray(call.constant(2, "the bias of a convolution")) if call.has(2) else None
    if bias is not None and bias.shape != (outputs // repeats,):
        raise call.node.unsupported(f"a bias {list(bias.shape)} for {outputs // repeats} outputs")
    shape = (x.shape[0], outputs, *(axis.out for axis in axes))
    rows = np.asarray(weight).reshape(outputs, -1)
    if groups == 1 and outputs >= PACKED_CONV_OUTPUTS and all(map(_is_whole, axes)):
        multiply = linear if rows.shape[1] >= GROUP else float_linear
        one = call.reshape(x, (x.shape[0], rows.shape[1]))
        return call.reshape(multiply(call, one, rows, None if bias is None else np.repeat(bias, repeats)), shape)
    if len(axes) == 3:
        x = _layers(call, x, axes[0], upsample[0])
        axes, upsample = axes[1:], upsample[1:]
    if len(axes) == 2 and _is_point(axes[1]):  # a column as a row, as kernels take rows of pixels
        axes, upsample = axes[::-1], upsample[::-1]
        x = call.reshape(x, (*x.shape[:2], 1, x.shape[2]))
    terms, pixels = rows.shape[1], math.prod(axis.out for axis in axes)
    if is_quantized(call.emit.profile.body_format):  # few terms are not quantised: docs/numerics.md section 11
        packed = groups == 1 and terms >= GROUP
    else:
        large = outputs >= PACKED_CONV_OUTPUTS and terms >= PACKED_CONV_TERMS and pixels >= PACKED_CONV_PIXELS
        packed = groups == 1 and large
    operands: list[Tensor | int] = [
        call.reshape(x, planar(x.shape)),
        call.emit.matrix(rows) if packed else call.emit.weight(rows),
    ]
    if bias is not None:
        operands.append(call.emit.weight(np.repeat(bias, repeats), "float32"))
    out = (x.shape[0], outputs, *(axis.out for axis in axes))
    y = call.op("Conv", operands, planar(out), attributes(axes, upsample) | {"groups": groups})
    if len(shape) == 5:
        y = call.transpose(call.reshape(y, (shape[0], shape[2], outputs, *out[2:])), (0, 2, 1, 3, 4))
    return call.reshape(y, shape)


def _is_whole(axis: Axis) -> bool:
    """Whether the only result reads the axis as it lies: such a convolution is a Linear."""
    return (axis.out, axis.pad, axis.dilation, axis.kernel) == (1, 0, 1, axis.size)


def _is_point(axis: Axis) -> bool:
    """Whether an axis has one element and its kernel too."""
    return (axis.size, axis.out, axis.kernel, axis.pad) == (1, 1, 1, 0)


def _by_computed(call: Call, x: Tensor, weight: Tensor, groups: int, axes: list[Axis], upsample: list[int]) -> Tensor:
    """A product of the weight that the network computes and what each result reads: a slice of x for each tap."""
    n, channels, taps = x.shape[0], x.shape[1], math.prod(weight.shape[2:])
    if taps > _MAX_TAPS:
        raise call.node.unsupported(f"a computed weight with {taps} taps; the limit is {_MAX_TAPS}")
    if max(upsample) > 1:  # zeros behind each element
        apart = [extent for axis in axes for extent in (axis.size, 1)]
        wide = [extent for axis, by in zip(axes, upsample, strict=True) for extent in (axis.size, by)]
        what = {"begins": [0] * (2 + len(wide)), "value": 0.0}
        x = call.op("Pad", [call.reshape(x, (n, channels, *apart))], (n, channels, *wide), what)
        x = call.reshape(x, (n, channels, *(axis.size * by for axis, by in zip(axes, upsample, strict=True))))
    before = [max(axis.pad, 0) for axis in axes]
    ends = [(axis.kernel - 1) * axis.dilation - axis.pad + (axis.out - 1) * axis.stride + 1 for axis in axes]
    room = [max(size, end) + begin for size, end, begin in zip(x.shape[2:], ends, before, strict=True)]
    if tuple(room) != x.shape[2:]:
        x = call.op("Pad", [x], (n, channels, *room), {"begins": [0, 0, *before], "value": 0.0})
    steps, shape = [1, 1, *(axis.stride for axis in axes)], [n, channels, *(axis.out for axis in axes)]
    parts = []
    for tap in np.ndindex(*weight.shape[2:]):
        starts = [at * axis.dilation - axis.pad + begin for at, axis, begin in zip(tap, axes, before, strict=True)]
        part = strided(call, x, [0, 0, *starts], steps, shape)
        parts.append(call.reshape(part, (n, channels, 1, math.prod(shape[2:]))))
    columns = parts[0]
    if taps > 1:
        columns = call.op("Concat", parts, (n, channels, taps, math.prod(shape[2:])), {"axis": 2})
    return by_product(call, weight, columns, groups, shape[2:], 2)


def by_product(call: Call, weight: Tensor, columns: Tensor, groups: int, out: Sequence[int], bias_index: int) -> Tensor:
    """A convolution of what each result reads, [N, C, taps, results], as a product with the weight, and a bias."""
    n, channels, taps, count = columns.shape
    outputs, terms = weight.shape[0], channels // groups * taps
    rows = call.reshape(weight, (1, groups, outputs // groups, terms))
    y = product(call, rows, call.reshape(columns, (n, groups, terms, count)))
    y = call.reshape(y, (n, outputs, count))
    if call.has(bias_index):
        bias, column = call.operand(bias_index), (1, outputs, 1)
        y = binary(call, "Add", y, call.reshape(bias, column) if isinstance(bias, Tensor) else bias.reshape(column))
    return call.reshape(y, (n, outputs, *out))


def _layers(call: Call, x: Tensor, axis: Axis, upsample: int) -> Tensor:
    """[N, C, D, H, W] as [N * results, C * taps, H, W]: of the first of three axes, what each result reads."""
    call.places(axis.out * axis.kernel)
    places, inside = places_of([axis], [upsample])
    places = np.where(inside, places, axis.size).T  # behind the last lie zeros
    n, channels, _, *plane = x.shape
    if not inside.all():
        x = call.op("Pad", [x], (n, channels, axis.size + 1, *plane), {"begins": [0] * 5, "value": 0.0})
    if not np.array_equal(places.reshape(-1), np.arange(x.shape[2])):
        x = take(call, x, places.reshape(-1), 2)
    x = call.transpose(call.reshape(x, (n, channels, axis.out, axis.kernel, *plane)), (0, 2, 1, 3, 4, 5))
    return call.reshape(x, (n * axis.out, channels * axis.kernel, *plane))
