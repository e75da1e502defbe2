"""Casts between types, and how float32 is rounded to a shorter one."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, Operand, constant_kind, lowers, within_float32
from .elementwise import binary, number, unary
from .integers import to_floats, to_integers, whole

# Types as numpy names them. Others round in ways that nothing here computes, or are no numbers.
_CAST_TO = frozenset(
    (
        "float16", "bfloat16", "float32", "float64", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32",
        "int64", "uint64",
    )
)  # fmt: skip


@lowers("Cast", "CastLike")
def cast(call: Call) -> Operand:
    """To floating point of the graph's own type, in float32 rounded to what fewer bits hold; to truths; to integers."""
    from onnx import TensorProto, helper

    x = call.operand(0)
    like = call.operand(1) if call.node.op == "CastLike" else None
    if like is None or not isinstance(like, Tensor):
        to = call.int_attr("to", 0) if like is None else helper.np_dtype_to_tensor_dtype(like.dtype)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(to))
        if dtype.name not in _CAST_TO:
            raise call.node.unsupported(
                f"a cast to {TensorProto.DataType.Name(to)}; expected floating point of 16 bits or more, bool, or "
                "integers of 8 bits or more"
            )
        kind = constant_kind(np.empty(0, dtype))
    else:
        kind, to = like.kind, TensorProto.UNDEFINED
    if not isinstance(x, Tensor):  # like a value that the network computes, or too large to be evaluated
        if like is not None:
            return x.astype(np.float32 if kind == "float" else np.int64 if kind == "int" else kind)
        x = call.as_tensor(x)
    if to == TensorProto.BOOL:
        zero = whole(0) if is_integer(x.kind) else number(0)
        return binary(call, "Equal", binary(call, "Equal", x, zero), number(0))
    if is_integer(kind):
        return to_integers(call, x, kind)
    if call.emit.dtype != "float32" or to not in _SHORT or call.emit.compared(x) is not None:
        return to_floats(call, x)
    return _of_bits(call, to_floats(call, x), to)


# By ONNX's number of a type: the largest number, the bits that float32 has behind its own, and the least normal number.
_SHORT = {10: (65504.0, 13, 2.0**-14), 16: (float.fromhex("0x1.fep127"), 16, 0.0)}  # float16 and bfloat16


def _of_bits(call: Call, x: Tensor, to: int) -> Tensor:
    """float32 rounded to the nearest number of a shorter type, of two the even one; beyond its ends they saturate.

    x - x / 2^bits is rounded where the shorter type ends, which is what its difference from x shows. The largest
    number, which stands for infinity, stays.
    """
    most, bits, normal = _SHORT[to]
    near = unary(call, "Clip", x, -most, most)
    less = binary(call, "Sub", near, binary(call, "Mul", near, number(2.0**-bits)))
    y = binary(call, "Mul", binary(call, "Sub", near, less), number(2.0**bits))
    size = unary(call, "Abs", x)
    if normal:  # below, they lie 2^-24 apart, as float32 does from 0.5 to 1
        tiny = binary(call, "Sub", binary(call, "Add", near, number(0.75)), number(0.75))
        y = call.op("Where", [binary(call, "Less", size, number(normal)), tiny, y], y.shape)
    finite = binary(call, "Less", size, number(within_float32(math.inf)))
    return call.op("Where", [finite, y, x], y.shape)
