"""Ops of HMONNX whose operands or attributes are not those of ONNX, but for Linear (`hmonnx_linear`)."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, lowers
from .elementwise import binary, number, unary
from .norm import layer_norm
from .reduce import best, reduced
from .shape import strided

DOMAIN = "ai.houmo.xh2a"
_SMALLEST_NORM = 6e-8  # the smallest fp16: the vendor's default, 1e-12, would be 0


def _epsilon(call: Call) -> float:
    return float(call.attr("eps", call.attr("epsilon", 1e-5)))


@lowers("LayerNorm", domain=DOMAIN)
def hmonnx_layer_norm(call: Call) -> list[Tensor | None]:
    call.node.attributes = {"epsilon": _epsilon(call), "axis": -1}
    return layer_norm(call)


@lowers("RMSNorm", domain=DOMAIN)
def rms_norm(call: Call) -> Tensor:
    x, weight = call.floats(0), np.asarray(call.constant(1, "the weight")).reshape(-1)
    if not x.shape or weight.shape != x.shape[-1:]:
        raise call.node.unsupported(f"a weight of {weight.size} elements for x {list(x.shape)}")
    rows = call.reshape(x, (math.prod(x.shape[:-1]), weight.size))
    y = call.op("RMSNorm", [rows, call.emit.weight(weight, "float32")], rows.shape, {"epsilon": _epsilon(call)})
    return call.reshape(y, x.shape)


@lowers("Normalize", domain=DOMAIN)
def normalize(call: Call) -> Tensor:
    """x / max(norm, eps)."""
    x = call.floats(0)
    axis = call.axis(call.int_attr("axis", -1), len(x.shape))
    norm = unary(call, "Sqrt", reduced(call, "ReduceSumSquare", x, [axis], True))
    least = max(float(call.attr("eps", 1e-12)), _SMALLEST_NORM)
    return binary(call, "Div", x, binary(call, "Max", norm, number(least)))


@lowers("Silu", domain=DOMAIN)
def silu(call: Call) -> Tensor:
    return unary(call, "Silu", call.floats(0))


@lowers("TopK", domain=DOMAIN)
def top_k(call: Call) -> list[Tensor]:
    """k is an attribute here."""
    x = call.floats(0)
    axis, count = call.axis(call.int_attr("axis", -1), len(x.shape)), call.int_attr("k", 1)
    if not 1 <= count <= x.shape[axis]:
        raise call.node.unsupported(f"k = {count} of an axis of {x.shape[axis]}")
    return list(best(call, x, axis, count, bool(call.int_attr("largest", 1))))


@lowers("Rope", domain=DOMAIN)
def rope(call: Call) -> Tensor:
    """x * cos + (-second half, first half) * sin, with tables that are sliced already."""
    x, cos, sin = call.floats(0), call.operand(1), call.operand(2)
    last = len(x.shape) - 1
    if last < 0 or x.shape[last] % 2 or cos.shape[-1:] != x.shape[-1:] or sin.shape[-1:] != x.shape[-1:]:
        raise call.node.unsupported(
            f"x {list(x.shape)} with tables {list(cos.shape)} and {list(sin.shape)}; expected one even last extent"
        )
    half = x.shape[last] // 2
    extents, ones = [*x.shape[:last], half], [1] * (last + 1)
    first = strided(call, x, [0] * (last + 1), ones, extents)
    second = strided(call, x, [0] * last + [half], ones, extents)
    turned = call.op("Concat", [unary(call, "Neg", second), first], x.shape, {"axis": last})
    return binary(call, "Add", binary(call, "Mul", x, cos), binary(call, "Mul", turned, sin))


@lowers("BatchGather", domain=DOMAIN)
def batch_gather(call: Call) -> Tensor:
    """Row current - 1 of x [1, T, H]."""
    x = call.floats(0)
    if len(x.shape) != 3 or x.shape[0] != 1:
        raise call.node.unsupported(f"x {list(x.shape)}, expected [1, T, H]")
    return call.op("BatchGather", [x, _length(call, 1)], (1, 1, x.shape[2]))


@lowers("KVcache", domain=DOMAIN)
def kv_cache(call: Call) -> Tensor:
    """New rows [1, heads, T, D] into a cache [1, heads, C, D], an input, in place."""
    cache = call.state(1)
    if len(cache.shape) != 4 or call.int_attr("axis", 2) != 2:
        raise call.node.unsupported(f"a cache {list(cache.shape)}, expected [1, heads, C, D] and axis 2")
    if not call.emit.is_input(cache):
        raise call.node.unsupported("the cache was updated before; each is updated once")
    if "attention_max_length" in call.node.attributes:
        raise call.node.unsupported("attention_max_length: caches that return their last rows only are not modelled")
    new = _by_token(call, call.floats(0), cache.shape[1])
    if (new.shape[0], new.shape[3]) != (cache.shape[0], cache.shape[3]):
        raise call.node.unsupported(f"new rows {list(call.floats(0).shape)} for a cache {list(cache.shape)}")
    return call.op("KVcache", [new, cache, _length(call, 2), _length(call, 3)], cache.shape, result="state")


@lowers("FlashAttention", domain=DOMAIN)
def flash_attention(call: Call) -> Tensor:
    """q [1, heads, T, D] over two updated caches; [1, T, heads * D]. The operand `table` is not read."""
    keys, values = call.state(1), call.state(2)
    heads = call.int_attr("num_heads", call.floats(0).shape[1] if len(call.floats(0).shape) == 4 else 0)
    q = _by_token(call, call.floats(0), heads)
    if not call.int_attr("is_causal", 1):
        raise call.node.unsupported("is_causal 0: only tokens before a token can be seen")
    if keys.shape != values.shape or call.int_attr("num_kv_heads", keys.shape[1]) != keys.shape[1]:
        raise call.node.unsupported(f"caches {list(keys.shape)} and {list(values.shape)} do not fit num_kv_heads")
    if call.emit.is_input(keys) or call.emit.is_input(values):
        raise call.node.unsupported("a cache that no KVcache updates")
    what: dict[str, float | int] = {}
    if (scale := float(call.attr("scale", -1.0))) > 0:
        what["scale"] = scale
    if (window := call.int_attr("sliding_window", -1)) > 0:
        what["window"] = window
    operands = [q, keys, values, _length(call, 4), _length(call, 5)]
    return call.op("FlashAttention", operands, (q.shape[0], q.shape[1], q.shape[2] * q.shape[3]), what)


def _by_token(call: Call, x: Tensor, heads: int) -> Tensor:
    """[B, heads, T, D] as [B, T, heads, D]; what has its heads on axis 2 only stays."""
    if len(x.shape) != 4 or heads not in x.shape[1:3]:
        raise call.node.unsupported(f"rows {list(x.shape)}, expected [1, {heads} heads, T, D]")
    return call.transpose(x, (0, 2, 1, 3)) if x.shape[1] == heads else x


def _length(call: Call, index: int) -> Tensor:
    """A number of tokens: an int32 [1] input."""
    operand: Operand = call.operand(index)
    if not isinstance(operand, Tensor) or operand.kind != "int" or math.prod(operand.shape) != 1:
        raise call.node.unsupported(f"operand {index} is no int32 [1] input")
    if not call.emit.is_input(operand):
        raise call.node.unsupported(f"operand {index} is computed; a number of tokens must be an input")
    return operand
