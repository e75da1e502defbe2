"""Quantised ops of onnxruntime's own domain: those of what the codes stand for, and codes of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, lowers
from .codes import coded, parameters
from .elementwise import binary, unary, where
from .matmul import gemm
from .pool import global_pool, pool
from .quantised import codes_at, constant_codes
from .reduce import reduced, softmax
from .shape import concat

DOMAIN = "com.microsoft"


@lowers("QLinearAdd", "QLinearMul", domain=DOMAIN)
def qlinear_binary(call: Call) -> Tensor:
    y = binary(call, call.node.op.removeprefix("QLinear"), codes_at(call, 0, -1), codes_at(call, 3, -1))
    return _coded(call, y, 6)


@lowers("QLinearSigmoid", "QLinearLeakyRelu", domain=DOMAIN)
def qlinear_unary(call: Call) -> Tensor:
    alpha = call.attr("alpha", 0.01) if call.node.op == "QLinearLeakyRelu" else 0.0
    return _coded(call, unary(call, call.node.op.removeprefix("QLinear"), codes_at(call, 0, -1), alpha), 3)


@lowers("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(call: Call) -> Tensor:
    return _coded(call, softmax(plain(call, "Softmax", [codes_at(call, 0, -1)], call.int_attr("opset", 13))), 3)


@lowers("QLinearGlobalAveragePool", "QLinearAveragePool", domain=DOMAIN)
def qlinear_pool(call: Call) -> Tensor:
    x = codes_at(call, 0, -1)
    inner = plain(call, call.node.op.removeprefix("QLinear"), [x])
    if inner.node.op == "AveragePool":
        return _coded(call, pool(inner), 3)
    if call.int_attr("channels_last", 0):
        return _coded(call, reduced(call, "ReduceMean", x, list(range(1, len(x.shape) - 1)), True), 3)
    return _coded(call, global_pool(inner), 3)


@lowers("QLinearWhere", domain=DOMAIN)
def qlinear_where(call: Call) -> Tensor:
    parts = [codes_at(call, index, -1) for index in (1, 4)]
    return _coded(call, where(plain(call, "Where", [call.operand(0), *parts])), 7)


@lowers("QLinearConcat", domain=DOMAIN)
def qlinear_concat(call: Call) -> Tensor:
    if call.count < 5 or call.count % 3 != 2:
        raise call.node.unsupported(f"{call.count} operands; expected a scale, a zero point, and three for each part")
    parts = [codes_at(call, index, -1) for index in range(2, call.count, 3)]
    return _coded(call, concat(plain(call, "Concat", parts)), 0)


@lowers("QGemm", domain=DOMAIN)
def qgemm(call: Call) -> Tensor:
    """The bias counts in steps of both scales and alpha."""
    b = constant_codes(call, 3, 4, 5, 0 if call.int_attr("transB", 0) else -1, "the second operand")
    operands: list[Operand] = [codes_at(call, 0, -1), b]
    if call.has(6):
        scales = np.float32(call.scalar(1, "the scale")) * np.asarray(call.constant(4, "the scale"), np.float32)
        bias = np.asarray(call.constant(6, "the bias"), np.float32)
        operands.append(np.asarray(bias * scales * np.float32(call.attr("alpha", 1.0)), np.float32))
    y = gemm(plain(call, "Gemm", operands))
    return _coded(call, y, 7) if call.has(7) else y


def plain(call: Call, op: str, operands: Sequence[Operand | None], opset: int = 13, **attributes: Any) -> Call:
    """An op of ONNX with the attributes of this one, and others."""
    node = replace(call.node, op=op, domain="", opset=opset, attributes={**call.node.attributes, **attributes})
    return Call(node, list(operands), call.emit)


def _coded(call: Call, y: Tensor, scale: int) -> Tensor:
    return coded(call, y, *parameters(call, y, scale, scale + 1, -1))
