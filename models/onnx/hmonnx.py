"""HMONNX, the vendor's quantised ONNX: the ops of the domain `ai.houmo.xh2a`. Experimental.

No file of the vendor's was read for this. Names, operands and attributes are from the vendor's public scripts; what
those leave open is a guess, and docs/onnx.md lists it. An op whose operands are not known is in `_BLOCKED`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..common.packing import dequantize, is_quantized
from .emit import GROUP, Tensor
from .errors import UnsupportedNodeError, shown
from .lower.elementwise import binary, number, unary
from .lower.matmul import linear, packed_linear
from .lower.norm import layer_norm
from .lower.reduce import best, reduced
from .lower.shape import strided
from .network import Network, Node
from .table import LOWERINGS, Call, Constant, Operand, lowers

DOMAIN = "ai.houmo.xh2a"
VERSION = 1

# Ops that have the operands and attributes of ONNX's, or their first ones: tables of function values are not read.
_AS_ONNX = (
    "Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Reciprocal", "Pow", "Relu", "Sigmoid", "Gelu", "Exp", "Softplus",
    "Tanh", "Softmax", "MatMul", "Slice", "Gather", "Concat", "Split", "Expand", "Unsqueeze", "Transpose", "Reshape",
    "Pad", "Sin", "Cos",
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2",
)  # fmt: skip

_UNKNOWN_OPERANDS = "the order of its quantised operands is not public"
_NO_OP = "there is no op for it yet"
_BLOCKED = {
    "Conv": _UNKNOWN_OPERANDS,
    "ConvTranspose": _UNKNOWN_OPERANDS,
    "MoEBlock": _UNKNOWN_OPERANDS,
    "MoeBlockPrune": _UNKNOWN_OPERANDS,
    "PruningRouter": _UNKNOWN_OPERANDS,
    "LSTM": _UNKNOWN_OPERANDS,
    "LoRALinear": _UNKNOWN_OPERANDS,
    "GroupNorm": "the name of its number of groups is not public",
    "MaskedAdd": "how it saturates is not public",
    "MaskedSoftmax": "how it saturates is not public",
    "SoftmaxPlus": "what it adds to Softmax is not public",
    "SinksSoftmax": "attention in parts is not recognised",
    "LLMCache": "caches that return their last rows only are not modelled",
    "DynamicSlice": "a slice from a computed place is not recognised as the positions of a Rope",
    "GDRChunkScan": _NO_OP,
    "GDRRecurrentScan": _NO_OP,
    "GDRBlockTriInverse": _NO_OP,
    "Resizer": "its name and operands in the file are not public",
}

# Of Linear: the values that are computed. An attribute that is missing has the first.
_LINEAR_VALUES: Mapping[str, tuple[object, ...]] = {
    "hmfp_act_man_bit": (8,),
    "hmfp_act_nshare": (GROUP,),
    "hmfp_weight_man_bit": (8, 4),
    "hmfp_weight_nshare": (GROUP,),
    "output_dtype": ("float16",),
}
_MASKS = "masks, ranges, window starts and valid lengths as operands are not supported"
_FORMATS = {8: "linear_w8", 4: "linear_w4"}
_LEAST_CODE = {8: -127, 4: -8}
_SMALLEST_NORM = 6e-8  # the smallest fp16: the vendor's default, 1e-12, would be 0


def blocked() -> dict[str, str]:
    """Ops of the vendor's domain that are known and not supported, with the reasons."""
    return dict(_BLOCKED)


def is_hmonnx(network: Network) -> bool:
    """Whether a model has nodes of the vendor's domain."""
    return any(node.domain == DOMAIN for node in network.nodes)


def check_version(network: Network) -> None:
    """Raises UnsupportedNodeError for another version of the domain."""
    version = network.foreign.get(DOMAIN)
    if is_hmonnx(network) and version != VERSION:
        named = "no version" if version is None else f"version {version}"
        raise UnsupportedNodeError(f"the model names {named} of {DOMAIN}, supported is {VERSION}")


def caches(network: Network) -> set[str]:
    """Names of the inputs that a KVcache updates in place."""
    nodes = (node for node in network.nodes if node.domain == DOMAIN and node.op == "KVcache")
    return {node.inputs[1] for node in nodes if len(node.inputs) > 1}


def why_not(node: Node) -> str | None:
    """Why a node of the domain cannot be lowered, as far as its attributes tell; None where nothing speaks against."""
    if (DOMAIN, node.op) not in LOWERINGS:
        return _BLOCKED.get(node.op, "the op is not in the import table")
    if node.op == "Linear":
        for name, values in _LINEAR_VALUES.items():
            if (value := node.attributes.get(name, values[0])) not in values:
                expected = " or ".join(str(v) for v in values)
                return f"{name} is {shown(str(value))}, supported is {expected}"
    if node.op == "FlashAttention" and any(node.inputs[6:]):
        return _MASKS
    return None


def _enter_onnx_ops() -> None:
    for op in _AS_ONNX:
        lowers(op, domain=DOMAIN)(LOWERINGS["", op])
    lowers("LayerNorm", domain=DOMAIN)(_layer_norm)


def _epsilon(call: Call) -> float:
    return float(call.attr("eps", call.attr("epsilon", 1e-5)))


def _layer_norm(call: Call) -> list[Tensor | None]:
    call.node.attributes = {"epsilon": _epsilon(call), "axis": -1}
    return layer_norm(call)


@lowers("Linear", domain=DOMAIN)
def quantised_linear(call: Call) -> Tensor:
    """x [.., K], codes [K, N], scales or exponents [K / 64, N], bias [N]. A guess: an exponent e means code * 2^e."""
    x, codes = call.floats(0), np.asarray(call.constant(1, "qweight"))
    scales = np.asarray(call.constant(2, "scale_or_exp"))
    bits = call.int_attr("hmfp_weight_man_bit", 8)
    if codes.ndim != 2 or codes.dtype != np.int8:
        raise call.node.unsupported(f"qweight is {codes.dtype.name} {list(codes.shape)}, expected int8 [K, N]")
    inputs, outputs = codes.shape
    if not inputs or not outputs:
        raise call.node.unsupported(f"qweight is {list(codes.shape)}: empty tensors are not supported")
    for name, extent in (("in_features", inputs), ("out_features", outputs)):
        if call.int_attr(name, extent) != extent:
            raise call.node.unsupported(f"{name} is {call.int_attr(name, extent)}, but qweight is {list(codes.shape)}")
    if x.shape[-1:] != (inputs,):
        raise call.node.unsupported(f"x {list(x.shape)} does not fit qweight {list(codes.shape)}")
    if bits == 4 and (codes.min() < -8 or codes.max() > 7):
        raise call.node.unsupported("qweight has codes beyond -8..7 with hmfp_weight_man_bit 4")
    groups = -(-inputs // GROUP)
    if scales.shape != (groups, outputs):
        raise call.node.unsupported(
            f"scale_or_exp is {list(scales.shape)}, expected [{groups}, {outputs}]: a number for every 64 inputs"
        )
    bias = np.asarray(call.constant(3, "the bias")).reshape(-1) if call.has(3) else None
    if bias is not None and bias.shape != (outputs,):
        raise call.node.unsupported(f"a bias of {bias.size} elements for {outputs} outputs")
    padded = np.pad(np.ascontiguousarray(codes.T), ((0, 0), (0, groups * GROUP - inputs)))
    stored = _scales(call, np.ascontiguousarray(scales.T), bits)
    if not is_quantized(call.emit.profile.body_format):
        with np.errstate(over="ignore"):
            weight = dequantize(padded, stored)[:, :inputs]
        if not np.isfinite(weight).all():
            raise call.node.unsupported("a code times its scale is beyond float32")
        return linear(call, x, weight, bias)
    if bits == 8 and stored.dtype != np.int8:
        raise call.node.unsupported("8-bit codes with scales that are no powers of two are not supported")
    if bits == 4:
        stored = _half(call, stored)
    packed = call.emit.packed_matrix(_FORMATS[bits], np.maximum(padded, _LEAST_CODE[bits]), stored)
    call.emit.clamped_codes += int(np.count_nonzero(padded < _LEAST_CODE[bits]))
    return packed_linear(call, x, packed, outputs, bias)


def _scales(call: Call, scales: Constant, bits: int) -> Constant:
    """Exponents as int8, which scales that are powers of two also become with 8-bit codes; other scales as they are."""
    if scales.dtype.kind in "iu":
        if scales.min() < -126 or scales.max() > 127:
            raise call.node.unsupported(f"an exponent of {scales.min()} or {scales.max()}, expected -126 to 127")
        return scales.astype(np.int8)
    if scales.dtype.kind != "f" or not np.isfinite(scales).all():
        raise call.node.unsupported(f"scale_or_exp is {scales.dtype.name}, expected integers or finite numbers")
    parts, exponents = np.frexp(scales.astype(np.float32))
    if bits == 8 and (parts == 0.5).all() and exponents.min() > -126:
        return (exponents - 1).astype(np.int8)
    return scales.astype(np.float32)


def _half(call: Call, scales: Constant) -> Constant:
    """As fp16 scales, which must hold them exactly: formats with 4-bit codes store those."""
    wide = np.ldexp(np.float32(1), scales.astype(np.int32)) if scales.dtype == np.int8 else scales
    with np.errstate(over="ignore"):
        half = wide.astype(np.float16)
    if (half.astype(np.float32) != wide).any() or (np.abs(half) < np.finfo(np.float16).tiny).any():
        raise call.node.unsupported("a scale of 4-bit codes is no normal fp16 number")
    return half


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


_enter_onnx_ops()
