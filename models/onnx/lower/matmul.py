"""MatMul, Gemm, and Linear behind both."""

from __future__ import annotations

import math

import numpy as np

from ...weights.packing import is_quantized
from ..emit import GROUP, Tensor
from ..network import OWN
from ..table import Call, Constant, Operand, lowers
from .elementwise import binary, number


def linear(call: Call, x: Tensor, weight: Constant, bias: Constant | None) -> Tensor:
    """x [.., K] times a constant [N, K], plus [N]."""
    return packed_linear(call, x, call.emit.matrix(np.asarray(weight)), weight.shape[0], bias)


def float_linear(call: Call, x: Tensor, weight: Constant, bias: Constant | None) -> Tensor:
    """The same with a weight that no format quantises."""
    return _rows_by(call, x, call.emit.float_matrix(np.asarray(weight)), weight.shape[0], bias)


def packed_linear(call: Call, x: Tensor, weight: int, outputs: int, bias: Constant | None) -> Tensor:
    """The same with a weight that is packed already, its K padded to whole groups where it is quantised."""
    inputs = x.shape[-1]
    if is_quantized(call.emit.profile.body_format) and inputs % GROUP:
        rows = call.reshape(x, (math.prod(x.shape[:-1]), inputs))
        rows = call.op("Pad", [rows], (rows.shape[0], inputs + -inputs % GROUP), {"begins": [0, 0], "value": 0.0})
        return call.reshape(_rows_by(call, rows, weight, outputs, bias), (*x.shape[:-1], outputs))
    return _rows_by(call, x, weight, outputs, bias)


def _rows_by(call: Call, x: Tensor, weight: int, outputs: int, bias: Constant | None) -> Tensor:
    rows = call.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    operands: list[Tensor | int] = [rows, weight]
    if bias is not None:
        operands.append(call.emit.weight(bias, "float32"))
    y = call.op("Linear", operands, (rows.shape[0], outputs))
    return call.reshape(y, (*x.shape[:-1], outputs))


@lowers("MatMul")
@lowers("MatMulBias", domain=OWN)
def matmul(call: Call) -> Tensor:
    """`MatMulBias` is what `fuse` makes of MatMul and an Add of a constant: the operands are a, b and the bias."""
    a, b = call.operand(0), call.operand(1)
    bias = None
    if call.node.op == "MatMulBias":
        a, bias = call.as_tensor(a), call.constant(2, "the bias")
    if isinstance(a, Tensor) and not isinstance(b, Tensor) and b.ndim == 2 and a.shape and a.shape[-1] == b.shape[0]:
        return linear(call, call.as_floats(a, "operand 0"), np.ascontiguousarray(np.asarray(b).T), bias)
    return product(call, a, b)


def product(call: Call, a: Operand, b: Operand) -> Tensor:
    """numpy's matmul of computed operands."""
    if not a.shape or not b.shape:
        raise call.node.unsupported("an operand is a scalar")
    left, right = (1, *a.shape) if len(a.shape) == 1 else a.shape, (*b.shape, 1) if len(b.shape) == 1 else b.shape
    if left[-1] != right[-2]:
        raise call.node.unsupported(f"operands {list(a.shape)} and {list(b.shape)} do not fit each other")
    lead = np.broadcast_shapes(left[:-2], right[:-2])
    first = call.reshape(call.as_floats(a), _ranked(left, len(lead)))
    second = call.reshape(call.as_floats(b), _ranked(right, len(lead)))
    y = call.op("MatMul", [first, second], (*lead, left[-2], right[-1]))
    shape = (*lead, *(left[-2:-1] if len(a.shape) > 1 else ()), *(right[-1:] if len(b.shape) > 1 else ()))
    return call.reshape(y, shape)


def _ranked(shape: tuple[int, ...], lead: int) -> tuple[int, ...]:
    return (*[1] * (lead + 2 - len(shape)), *shape)


@lowers("Gemm")
def gemm(call: Call) -> Tensor:
    alpha, beta = call.attr("alpha", 1.0), call.attr("beta", 1.0)
    a, b = call.floats(0), call.operand(1)
    if call.int_attr("transA", 0):
        a = call.transpose(a, (1, 0))
    bias = call.get(2)
    turned = bool(call.int_attr("transB", 0))
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[1 if turned else 0]:
        raise call.node.unsupported(f"operands {list(a.shape)} and {list(b.shape)} do not fit each other")
    if not isinstance(b, Tensor):
        weight = np.asarray(b, np.float32) * np.float32(alpha)
        weight = weight if turned else np.ascontiguousarray(weight.T)
        if bias is None:
            return linear(call, a, weight, None)
        if not isinstance(bias, Tensor) and np.broadcast_shapes(bias.shape, (weight.shape[0],)) == (weight.shape[0],):
            return linear(call, a, weight, np.broadcast_to(np.asarray(bias) * np.float32(beta), (weight.shape[0],)))
        y = linear(call, a, weight, None)
    else:
        y = product(call, a, call.transpose(b, (1, 0)) if turned else b)
        if alpha != 1.0:
            y = binary(call, "Mul", y, number(alpha))
    if bias is None:
        return y
    if beta != 1.0:
        bias = (
            binary(call, "Mul", bias, number(beta)) if isinstance(bias, Tensor) else np.asarray(bias) * np.float32(beta)
        )
    return binary(call, "Add", y, bias)
