"""Kernels, strides and pads of convolutions and pools, as ONNX writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..table import Call


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis. `pad` and `pad_end` may be negative where a transposed convolution cuts."""

    size: int
    out: int
    kernel: int
    stride: int = 1
    pad: int = 0
    pad_end: int = 0
    dilation: int = 1


def windows(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> list[Axis]:
    """The axes of a convolution or pool, by kernel_shape, strides, dilations, pads, auto_pad and ceil_mode.

    Raises:
        UnsupportedNodeError: Lists of other lengths, or a window larger than its padded input.
    """
    rank = len(sizes)
    check_rank(call, rank)
    strides = of_rank(call, "strides", rank, 1)
    dilations = of_rank(call, "dilations", rank, 1)
    pads = of_rank(call, "pads", 2 * rank, 0)
    auto = call.attr("auto_pad", "NOTSET") or "NOTSET"
    axes = []
    for i, size in enumerate(sizes):
        span = (kernel[i] - 1) * dilations[i] + 1
        if min(strides[i], dilations[i], kernel[i]) < 1:
            raise call.node.unsupported("a kernel, stride or dilation below 1")
        begin, end = pads[i], pads[i + rank]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            total = max((-(-size // strides[i]) - 1) * strides[i] + span - size, 0)
            begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
            end = total - begin
        elif auto == "VALID":
            begin = end = 0
        elif auto != "NOTSET":
            raise call.node.unsupported(f"auto_pad {auto!r}")
        room = size + begin + end - span
        if begin < 0 or end < 0:
            raise call.node.unsupported(f"pads {pads}, expected no negative ones")
        rounds_up = bool(call.int_attr("ceil_mode", 0))  # a first window may then end behind the padding, as others may
        if room < 0 and not (rounds_up and -room < strides[i]):
            raise call.node.unsupported(f"a window of {span} over a padded input of {size + begin + end}")
        out = room // strides[i] + 1
        if rounds_up:
            out = -(-room // strides[i]) + 1
            if (out - 1) * strides[i] >= size + begin:  # a window that would begin in the padding behind
                out -= 1
        axes.append(Axis(size, out, kernel[i], strides[i], begin, end, dilations[i]))
    return axes


def check_rank(call: Call, rank: int) -> None:
    """Refuses what has no spatial axes, or too many."""
    if rank not in (1, 2, 3):
        raise call.node.unsupported(f"{rank} spatial axes; supported are 1, 2 and 3")


def check_kernel(call: Call, kernel: Sequence[int]) -> None:
    """Refuses a kernel_shape that is not the weight's."""
    said = of_rank(call, "kernel_shape", len(kernel), 0)
    if call.attr("kernel_shape") is not None and said != list(kernel):
        raise call.node.unsupported(f"kernel_shape {said} for a weight with the kernel {list(kernel)}")


def of_rank(call: Call, name: str, count: int, default: int) -> list[int]:
    """A list attribute of `count` whole numbers."""
    values = call.attr(name)
    if values is None:
        return [default] * count
    if not isinstance(values, (list, tuple)) or len(values) != count or not all(isinstance(v, int) for v in values):
        raise call.node.unsupported(f"attribute '{name}' does not have {count} whole numbers")
    return list(values)


def places_of(axes: Sequence[Axis], upsample: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where each tap of each result lies in a plane [.. taps, .. results], and whether it lies on an element."""
    rank = len(axes)
    places, inside = np.zeros([1] * 2 * rank, np.int64), np.ones([1] * 2 * rank, bool)
    for i, (axis, by) in enumerate(zip(axes, upsample, strict=True)):
        at = np.arange(axis.kernel)[:, None] * axis.dilation + np.arange(axis.out) * axis.stride - axis.pad
        at = np.expand_dims(at, [j for j in range(2 * rank) if j not in (i, i + rank)])
        inside = inside & (at >= 0) & (at < axis.size * by) & (at % by == 0)
        places = places * axis.size + at // by
    return places, inside


def attributes(axes: Sequence[Axis], upsample: Sequence[int] = (1, 1)) -> dict[str, list[int]]:
    """The attributes of our window ops; one axis becomes two."""
    two = [Axis(1, 1, 1)] * (2 - len(axes)) + list(axes)
    up = [1] * (2 - len(upsample)) + list(upsample)
    return {
        "kernel": [axis.kernel for axis in two],
        "strides": [axis.stride for axis in two],
        "pads": [axis.pad for axis in two],
        "dilations": [axis.dilation for axis in two],
        "upsample": up,
    }


def planar(shape: Sequence[int]) -> tuple[int, ...]:
    """[N, C, W] as [N, C, 1, W]; [N, C, H, W] as it is."""
    return tuple(shape) if len(shape) == 4 else (*shape[:2], 1, *shape[2:])
