"""Ops of onnxruntime's own domain that its optimisers make of several of ONNX: what they were made of."""

from __future__ import annotations

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, lowers
from .activation import swish
from .conv import conv
from .elementwise import binary, number, unary
from .gather import gather
from .matmul import gemm, linear, product
from .microsoft import DOMAIN, plain
from .norm import layer_norm, rms_norm

lowers("SimplifiedLayerNormalization")(rms_norm)


def _activated(call: Call, y: Tensor, numbers: list[float]) -> Tensor:
    """The function that a convolution or product ends in."""
    kind = call.attr("activation", "")
    if not kind:
        return y
    if kind not in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"):
        raise call.node.unsupported(f"activation {kind!r:.40}")
    return unary(call, kind, y, *(float(value) for value in numbers[:2]))


@lowers("FusedConv", domain=DOMAIN)
def fused_conv(call: Call) -> Tensor:
    y = conv(plain(call, "Conv", [call.get(i) for i in range(3)]))
    if call.has(3):
        y = binary(call, "Add", y, call.operand(3))
    return _activated(call, y, call.attr("activation_params", []))


@lowers("FusedGemm", domain=DOMAIN)
def fused_gemm(call: Call) -> Tensor:
    y = gemm(plain(call, "Gemm", [call.get(i) for i in range(3)]))
    return _activated(call, y, [call.attr(f"activation_{name}", 0.0) for name in ("alpha", "beta")])


@lowers("FusedMatMul", domain=DOMAIN)
def fused_matmul(call: Call) -> Tensor:
    a, b, alpha = call.floats(0), call.operand(1), float(call.attr("alpha", 1.0))
    turns = call.int_attr("transBatchA", 0) or call.int_attr("transBatchB", 0)
    if turns and not 2 < len(a.shape) == len(b.shape):
        raise call.node.unsupported(f"turned batches of operands {list(a.shape)} and {list(b.shape)}")
    a = _turned(call, a, "A")
    if not isinstance(b, Tensor) and b.ndim == 2:
        weight = np.asarray(b if call.int_attr("transB", 0) else b.T, np.float32)
        if weight.shape[1] == a.shape[-1]:
            return linear(call, a, np.ascontiguousarray(weight * np.float32(alpha)), None)
    y = product(call, a, _turned(call, call.as_floats(b), "B"))
    return y if alpha == 1.0 else binary(call, "Mul", y, number(alpha))


def _turned(call: Call, x: Tensor, which: str) -> Tensor:
    """An operand as its attributes ask: the first axis behind those of the batch, and the last two axes exchanged."""
    rank = len(x.shape)
    axes = list(range(rank))
    if call.int_attr(f"transBatch{which}", 0):
        axes = [*axes[1:-1], 0, rank - 1]
    if call.int_attr(f"trans{which}", 0) and rank > 1:
        axes[-2:] = axes[:-3:-1]
    return call.transpose(x, axes)


@lowers("Gelu", "BiasGelu", "FastGelu", domain=DOMAIN)
def biased_gelu(call: Call) -> Tensor:
    x = binary(call, "Add", call.floats(0), call.operand(1)) if call.has(1) else call.floats(0)
    return unary(call, "GeluTanh" if call.node.op == "FastGelu" else "Gelu", x)


@lowers("QuickGelu", domain=DOMAIN)
def quick_gelu(call: Call) -> Tensor:
    return swish(plain(call, "Swish", [call.operand(0)], alpha=call.attr("alpha", 1.702)))


@lowers("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_norm(call: Call) -> list[Tensor | None]:
    """Of a sum of two, and of a bias; the sum is the fourth result."""
    simplified = call.node.op != "SkipLayerNormalization"
    total, bias = binary(call, "Add", call.floats(0), call.operand(1)), call.get(3 if simplified else 4)
    total = total if bias is None else binary(call, "Add", total, bias)
    if any(call.node.outputs[1:3]):
        raise call.node.unsupported("the mean or deviation as a result")
    return [_norm(call, total, 2, None if simplified else 3), None, None, total]


def _norm(call: Call, x: Tensor, scale: int, bias: int | None) -> Tensor:
    """With the operands at these places; no bias is an RMSNorm."""
    epsilon = call.attr("epsilon", 1e-12)
    if bias is None:
        return rms_norm(plain(call, "RMSNormalization", [x, call.operand(scale)], epsilon=epsilon))
    inner = plain(call, "LayerNormalization", [x, call.operand(scale), call.get(bias)], epsilon=epsilon)
    inner.node.outputs = inner.node.outputs[:1]
    y = layer_norm(inner)[0]
    assert y is not None
    return y


@lowers("EmbedLayerNormalization", domain=DOMAIN)
def embed(call: Call) -> list[Tensor | None]:
    """Rows of tables for tokens, places and segments, normalised; and how many tokens the mask has."""
    ids = call.operand(0)
    places: Operand = call.operand(8) if call.has(8) else np.arange(call.places(ids.shape[1]))[None]
    total = binary(call, "Add", _rows(call, 2, ids), _rows(call, 3, places))
    if call.has(1):
        total = binary(call, "Add", total, _rows(call, 4, call.operand(1)))
    count = None
    if call.has(7):
        mask = call.tensor(7)
        count = call.op("ReduceSum", [mask], (mask.shape[0], 1), result="int")
        count = call.reshape(count, (mask.shape[0],))
    return [_norm(call, total, 5, 6), count, total]


def _rows(call: Call, table: int, ids: Operand) -> Operand:
    if not isinstance(ids, Tensor):
        return np.asarray(call.constant(table, "a table"))[ids]
    return gather(plain(call, "Gather", [call.constant(table, "a table"), ids], axis=0))
