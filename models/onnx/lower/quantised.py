"""Ops of quantised models: products and convolutions of codes, and the codes of a range that the network computes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..table import Call, Constant, Operand, along, lowers
from .codes import coded, decoded, parameters
from .conv import conv
from .elementwise import binary, number, unary
from .integers import int32, to_floats, to_integers
from .matmul import linear, product
from .reduce import reduced
from .shape import strided

_EXACT_TERMS = (1 << 24) // (255 * 255)  # products of codes that float32 adds up exactly


@lowers("QLinearConv")
def qlinear_conv(call: Call) -> Tensor:
    """The convolution of what the codes stand for, and codes of its result."""
    weight = constant_codes(call, 3, 4, 5, 0, "the weight of a convolution")
    x = codes_at(call, 0, -1)
    bias: Constant | None = None
    if call.has(8):
        scales = np.float32(call.scalar(1, "the scale")) * np.asarray(call.constant(4, "the scale"), np.float32)
        bias = np.asarray(call.constant(8, "the bias of a convolution"), np.float32) * scales
    y = conv(Call(call.node, [x, weight, bias] if bias is not None else [x, weight], call.emit))
    return coded(call, y, *parameters(call, y, 6, 7, 1))


@lowers("QLinearMatMul")
def qlinear_matmul(call: Call) -> Tensor:
    """The product of what the codes stand for, and codes of its result."""
    a = codes_at(call, 0, -2)
    b = call.operand(3)
    if isinstance(b, Tensor):
        y = product(call, a, codes_at(call, 3, -1))
    else:
        matrix = constant_codes(call, 3, 4, 5, -1, "the second operand")
        y = linear(call, a, np.ascontiguousarray(matrix.T), None) if matrix.ndim == 2 else product(call, a, matrix)
    return coded(call, y, *parameters(call, y, 6, 7, -1))


@lowers("DynamicQuantizeLinear")
def dynamic(call: Call) -> list[Tensor]:
    """Codes from 0 to 255 of the range of x and 0, their scale and the code of 0."""
    x = call.floats(0)
    axes = list(range(len(x.shape)))
    most = binary(call, "Max", reduced(call, "ReduceMax", x, axes, False), number(0))
    least = binary(call, "Min", reduced(call, "ReduceMin", x, axes, False), number(0))
    scale = binary(call, "Div", binary(call, "Sub", most, least), number(255))
    none = binary(call, "Equal", scale, number(0))
    scale = binary(call, "Add", scale, none)  # of zeros alone it is 1
    zero = unary(call, "Round", binary(call, "Div", unary(call, "Neg", least), scale))
    limits = {"alpha": 0.0, "beta": 255.0}
    zero = call.op("Clip", [zero], zero.shape, limits)
    y = binary(call, "Add", unary(call, "Round", binary(call, "Div", x, scale)), zero)
    return [call.op("Clip", [y], y.shape, limits), scale, zero]


@lowers("MatMulInteger")
def matmul_integer(call: Call) -> Tensor:
    """An exact product: parts of it that float32 adds up exactly, as integers."""
    a = _less_zero(call, 0, 2, -2)
    b = call.operand(1) if isinstance(call.operand(1), Tensor) else _whole_codes(call, 1, 3, -1)
    b = _less_zero(call, 1, 3, -1) if isinstance(b, Tensor) else b
    if len(a.shape) < 1 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise call.node.unsupported(f"operands {list(a.shape)} and {list(b.shape)} do not fit each other")

    def part(begin: int, end: int) -> Tensor:
        left = _slice(call, a, len(a.shape) - 1, begin, end)
        if not isinstance(b, Tensor):
            right = b[..., begin:end, :]
            return (
                linear(call, left, np.ascontiguousarray(right.T), None)
                if right.ndim == 2
                else product(call, left, right)
            )
        return product(call, left, _slice(call, b, len(b.shape) - 2, begin, end))

    return _exact_sum(call, a.shape[-1], _EXACT_TERMS, part)


@lowers("ConvInteger")
def conv_integer(call: Call) -> Tensor:
    """As MatMulInteger: parts of some channels each."""
    if call.int_attr("group", 1) != 1:
        raise call.node.unsupported("groups; expected one")
    x, weight = _less_zero(call, 0, 2, -1), _whole_codes(call, 1, 3, 0)
    taps = max(math.prod(weight.shape[2:]), 1)
    if taps > _EXACT_TERMS or weight.ndim != len(x.shape) or weight.shape[1] != x.shape[1]:
        raise call.node.unsupported(f"a weight {list(weight.shape)} for an input {list(x.shape)}")

    def part(begin: int, end: int) -> Tensor:
        operands: list[Operand | None] = [_slice(call, x, 1, begin, end), weight[:, begin:end]]
        return conv(Call(call.node, operands, call.emit))

    return _exact_sum(call, x.shape[1], _EXACT_TERMS // taps, part)


def _exact_sum(call: Call, count: int, step: int, part: Callable[[int, int], Tensor]) -> Tensor:
    if call.emit.dtype != "float32":
        raise call.node.unsupported(
            f"sums of products of codes, which {call.emit.dtype} does not hold; compile with --quant float32, or use "
            "DynamicQuantizeLinear, Cast and Mul around it as onnxruntime's quantiser does"
        )
    y: Tensor | None = None
    for begin in range(0, count, step):
        terms = to_integers(call, part(begin, min(begin + step, count)))
        y = terms if y is None else int32(call, "Add", y, terms)
    if y is None:
        raise call.node.unsupported("an operand is empty, which is not supported")
    return y


def _slice(call: Call, x: Tensor, axis: int, begin: int, end: int) -> Tensor:
    starts, extents = [0] * len(x.shape), list(x.shape)
    starts[axis], extents[axis] = begin, end - begin
    return strided(call, x, starts, [1] * len(x.shape), extents)


def codes_at(call: Call, index: int, axis: int) -> Tensor:
    """What the codes of an operand stand for; its scale and zero point come behind it."""
    x = to_floats(call, call.tensor(index))
    return decoded(call, x, *parameters(call, x, index + 1, index + 2, axis))


def constant_codes(call: Call, index: int, scale: int, zero: int, axis: int, what: str) -> NDArray[np.float32]:
    """What constant codes stand for."""
    codes = _whole_codes(call, index, zero, axis, what)
    scales = np.asarray(call.constant(scale, "the scale"), np.float32)
    return np.asarray(codes * _along(call, scales, codes, axis), np.float32)


def _whole_codes(call: Call, index: int, zero: int, axis: int, what: str = "the weight") -> NDArray[np.float32]:
    """Constant codes, less their zero point."""
    codes = np.asarray(call.constant(index, what), np.float32)
    if not call.has(zero):
        return codes
    zeros = np.asarray(call.constant(zero, "the zero point"), np.float32)
    return np.asarray(codes - _along(call, zeros, codes, axis), np.float32)


def _along(call: Call, numbers: Constant, codes: Constant, axis: int) -> Constant:
    found = along(numbers, codes, axis)
    if found is None:
        raise call.node.unsupported(f"{numbers.size} scales or zero points for {list(codes.shape)}")
    return found


def _less_zero(call: Call, index: int, zero: int, axis: int) -> Tensor:
    """The codes of an operand, less their zero point, which the network may compute."""
    x = to_floats(call, call.tensor(index))
    if not call.has(zero):
        return x
    zeros = call.operand(zero)
    if isinstance(zeros, Tensor):
        if math.prod(zeros.shape) != 1:
            raise call.node.unsupported(f"computed zero points {list(zeros.shape)}; expected one")
        return binary(call, "Sub", x, call.reshape(to_floats(call, zeros), (1,) * max(len(x.shape), 1)))
    if not zeros.any():
        return x
    shape = [1] * len(x.shape)
    if zeros.size != 1:
        shape[axis] = zeros.size
    return binary(call, "Sub", x, zeros.astype(np.float32).reshape(shape))
