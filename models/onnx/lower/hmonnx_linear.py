"""Linear of HMONNX: codes with a scale or an exponent for every 64 inputs."""

from __future__ import annotations

import numpy as np

from ...weights.packing import dequantize, is_quantized
from ..emit import GROUP, Tensor
from ..table import Call, Constant, lowers
from .hmonnx_ops import DOMAIN
from .matmul import linear, packed_linear

_FORMATS = {8: "linear_w8", 4: "linear_w4"}
_LEAST_CODE = {8: -127, 4: -8}


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
