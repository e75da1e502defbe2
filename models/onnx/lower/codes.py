"""QuantizeLinear and DequantizeLinear. Codes are floating point numbers here, which hold those up to 8 bits exactly."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..emit import Tensor
from ..network import OWN
from ..table import Call, lowers
from .elementwise import binary, unary
from .integers import to_floats

_LIMITS = {
    "uint2": (0, 3), "int2": (-2, 1), "uint4": (0, 15), "int4": (-8, 7),
    "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767),
}  # fmt: skip
_EXACT = {"float16": 2048, "float32": 1 << 24}  # whole numbers up to there

Scale = NDArray[np.float32]
Zero = NDArray[np.generic] | None


@lowers("QuantizeLinear")
def quantize(call: Call) -> Tensor:
    """The nearest code of x / scale + zero point; of two the even one."""
    from onnx import TensorProto, helper

    x = call.floats(0)
    scale, zero = parameters(call, x, 1, 2, call.int_attr("axis", 1))
    kind = call.int_attr("output_dtype", 0) or TensorProto.UINT8
    return coded(call, x, scale, zero, helper.tensor_dtype_to_np_dtype(kind).name)


@lowers("DequantizeLinear")
def dequantize(call: Call) -> Tensor:
    x = to_floats(call, call.tensor(0))
    scale = call.operand(1)
    if isinstance(scale, Tensor):  # as DynamicQuantizeLinear makes it
        if math.prod(scale.shape) != 1:
            raise call.node.unsupported(f"computed scales {list(scale.shape)}; expected one, or constants")
        if call.has(2):
            x = binary(call, "Sub", x, to_floats(call, call.tensor(2)))
        return binary(call, "Mul", x, scale)
    return decoded(call, x, *parameters(call, x, 1, 2, call.int_attr("axis", 1)))


@lowers("FakeQuantize", domain=OWN)
def fake_quantize(call: Call) -> Tensor:
    """The numbers that codes of 8 bits stand for: those nearest to x."""
    return unary(call, "FakeQuantize", call.floats(0), call.attr("alpha", 0.0), call.attr("beta", 0.0))


def coded(call: Call, x: Tensor, scale: Scale, zero: Zero, dtype: str = "uint8") -> Tensor:
    """Codes of the type of the zero point, or of `dtype`."""
    low, high = _limits(call, zero.dtype.name if zero is not None else dtype)
    y = unary(call, "Round", binary(call, "Div", x, scale))
    if zero is not None and zero.any():
        y = binary(call, "Add", y, zero.astype(np.float32))
    return call.op("Clip", [y], y.shape, {"alpha": float(low), "beta": float(high)})


def decoded(call: Call, x: Tensor, scale: Scale, zero: Zero) -> Tensor:
    """What codes stand for."""
    if zero is not None:
        _limits(call, zero.dtype.name)
        x = binary(call, "Sub", x, zero.astype(np.float32)) if zero.any() else x
    return binary(call, "Mul", x, scale)


def parameters(call: Call, x: Tensor, scale_at: int, zero_at: int, axis: int) -> tuple[Scale, Zero]:
    """Scale and zero point of x, in shapes that repeat along the axes other than `axis`."""
    scale = np.asarray(call.constant(scale_at, "the scale"), np.float32)
    zero = np.asarray(call.constant(zero_at, "the zero point")) if call.has(zero_at) else None
    if call.int_attr("block_size", 0):
        raise call.node.unsupported("scales of blocks")
    shape: tuple[int, ...] = ()
    if scale.size != 1:
        axis = call.axis(axis, len(x.shape))
        shape = (x.shape[axis], *[1] * (len(x.shape) - axis - 1))
    if scale.size != math.prod(shape) or (zero is not None and zero.size != scale.size):
        raise call.node.unsupported(f"scales {list(scale.shape)} for {list(x.shape)}, or another number of zero points")
    return scale.reshape(shape), None if zero is None else zero.reshape(shape)


def _limits(call: Call, name: str) -> tuple[int, int]:
    if name not in _LIMITS or max(_LIMITS[name]) > _EXACT[call.emit.dtype]:
        raise call.node.unsupported(f"codes of {name}; supported are 2, 4 and 8 bits, and with --quant float32 16 bits")
    return _LIMITS[name]
