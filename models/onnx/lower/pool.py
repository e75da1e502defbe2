"""Pools."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..emit import Tensor
from ..table import Call, lowers
from .elementwise import binary, number, unary
from .integers import as_kind, to_floats
from .unpool import largest_with_places
from .window import Axis, attributes, check_rank, of_rank, planar, windows


@lowers("MaxPool", "AveragePool")
def pool_with_places(call: Call) -> list[Tensor]:
    x = call.tensor(0)
    if x.kind in ("int8", "uint8") and call.node.op == "MaxPool":  # which floats hold exactly
        y, *places = pool_with_places(Call(call.node, [to_floats(call, x)], call.emit))
        return [as_kind(call.op("Cast", [y], y.shape, result="int"), x.kind), *places]
    if not any(call.node.outputs[1:]):
        return [pool(call)]
    x = call.as_floats(x, "operand 0")
    return largest_with_places(call, x, windows(call, x.shape[2:], of_rank(call, "kernel_shape", len(x.shape) - 2, 0)))


def pool(call: Call) -> Tensor:
    """Without places."""
    x = call.floats(0)
    axes = windows(call, x.shape[2:], of_rank(call, "kernel_shape", len(x.shape) - 2, 0))
    if call.node.op == "AveragePool" and call.int_attr("count_include_pad", 0):
        return _pooled(call, call.node.op, x, axes, [axis.pad + axis.size + axis.pad_end for axis in axes])
    return _pooled(call, call.node.op, x, axes)


def _pooled(call: Call, op: str, x: Tensor, axes: Sequence[Axis], extent: Sequence[int] = ()) -> Tensor:
    """One of our pools, of three axes in two steps; with an extent zeros of the padding count up to there."""
    shape = (*x.shape[:2], *(axis.out for axis in axes))
    if len(axes) == 3:
        n, channels, depth, *plane = x.shape
        planes = _pooled(call, op, call.reshape(x, (n, channels * depth, *plane)), axes[1:], extent[1:])
        column = call.reshape(planes, (n, channels, depth, shape[3] * shape[4]))
        across = Axis(column.shape[3], column.shape[3], 1)
        one = [extent[0], across.size] if extent else []
        return call.reshape(_pooled(call, op, column, [axes[0], across], one), shape)
    what = attributes(axes) | ({"extent": [1] * (2 - len(axes)) + [*extent]} if extent else {})
    return call.reshape(call.op(op, [call.reshape(x, planar(x.shape))], planar(shape), what), shape)


@lowers("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: Call) -> Tensor:
    x = call.floats(0)
    flat = call.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))
    op = "ReduceMean" if call.node.op == "GlobalAveragePool" else "ReduceMax"
    y = call.op(op, [flat], (*x.shape[:2], 1))
    return call.reshape(y, (*x.shape[:2], *[1] * (len(x.shape) - 2)))


@lowers("LpPool", "GlobalLpPool")
def lp_pool(call: Call) -> Tensor:
    """(sum |x|^p)^(1/p): the mean of the powers, times the taps."""
    x, p = call.floats(0), call.int_attr("p", 2)
    if p < 1:
        raise call.node.unsupported(f"p = {p}")
    if call.node.op == "GlobalLpPool":
        check_rank(call, len(x.shape) - 2)
        axes = [Axis(size, 1, size) for size in x.shape[2:]]
    else:
        axes = windows(call, x.shape[2:], of_rank(call, "kernel_shape", len(x.shape) - 2, 0))
    # With an extent beyond every window all taps count.
    extent = [axis.size + axis.pad + (axis.kernel + axis.stride) * axis.dilation for axis in axes]
    powers = unary(call, "Abs", x)
    if p > 1:
        powers = binary(call, "Pow", powers, number(p))
    mean = _pooled(call, "AveragePool", powers, axes, extent)
    total = binary(call, "Mul", mean, number(math.prod(axis.kernel for axis in axes)))
    if p > 1:
        total = unary(call, "Sqrt", total) if p == 2 else binary(call, "Pow", total, number(1 / p))
    return total
