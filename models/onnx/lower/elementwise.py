"""Ops of one, two or more operands, element by element."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..emit import Tensor, is_integer
from ..network import OWN
from ..table import Call, Operand, constant_kind, lowers, within_float32
from .integers import kind_of, of_integers, powers, rest, to_floats, to_integers, whole

_BINARY = {
    "Add": "Add",
    "Sub": "Sub",
    "Mul": "Mul",
    "Div": "Div",
    "PRelu": "PRelu",
    "Equal": "Equal",
    "Less": "Less",
}
_UNARY = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Erf",
    "Exp",
    "Log",
    "Sqrt",
    "Reciprocal",
    "Neg",
    "Abs",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Softplus",
    "Sin",
    "Cos",
    "Atan",
)
_TINIEST = 2.0**-24  # of float16 above 0
# Types as numpy names them. Others round in ways that nothing here computes, or are no numbers.
_CAST_TO = frozenset(
    (
        "float16", "bfloat16", "float32", "float64", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32",
        "int64", "uint64",
    )
)  # fmt: skip


def binary(call: Call, kind: str, a: Operand, b: Operand) -> Tensor:
    """One of our elementwise ops, with numpy's rules for shapes."""
    integers = [is_integer(kind_of(operand)) for operand in (a, b)]
    if all(integers):
        if kind == "PRelu":
            raise call.node.unsupported("operands of integers; PRelu takes floating point numbers only")
        return of_integers(call, kind, a, b)
    if any(integers):
        raise call.node.unsupported("operands of integers and of floating point numbers; put a Cast before one")
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise call.node.unsupported(f"operands {list(a.shape)} and {list(b.shape)} do not fit each other") from None
    if kind in ("Add", "Max"):
        a, b = (_operand_above_zero(call, operand) for operand in (a, b))
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape:
        return call.op(kind, [a, b], shape)
    return call.op(kind, [call.source(a), call.source(b)], shape, {"broadcast": 1})


def unary(call: Call, kind: str, x: Tensor, alpha: float = 0.0, beta: float = 0.0) -> Tensor:
    """One of our ops of one operand."""
    return call.op(kind, [x], x.shape, {key: float(v) for key, v in (("alpha", alpha), ("beta", beta)) if v})


def _above_zero(call: Call, value: float) -> float:
    """What keeps a divisor from 0 does so in float16 too, where 1e-12 would be 0."""
    return _TINIEST if 0 < value < _TINIEST and call.emit.dtype == "float16" else value


def _operand_above_zero(call: Call, operand: Operand) -> Operand:
    if isinstance(operand, Tensor) or operand.size != 1:
        return operand
    value = float(operand.reshape(-1)[0])
    least = _above_zero(call, value)
    return np.full(operand.shape, least, np.float32) if least > value else operand


def number(value: float) -> np.ndarray:
    """A constant operand of one element."""
    return np.asarray([value], np.float32).reshape(())


@lowers(*_BINARY)
def two_operands(call: Call) -> Tensor:
    return binary(call, _BINARY[call.node.op], call.operand(0), call.operand(1))


@lowers("Pow")
def power(call: Call) -> Tensor:
    """The exponent may be of another type than the base; a constant of whole numbers is taken as floats."""
    base, exponent = call.operand(0), call.operand(1)
    if is_integer(kind_of(base)):
        return powers(call, call.as_tensor(base), exponent)
    if isinstance(exponent, Tensor):
        exponent = to_floats(call, exponent)
    elif exponent.dtype.kind in "iu":
        exponent = exponent.astype(np.float32)
    return binary(call, "Pow", base, exponent)


@lowers("Max", "Min", "Sum", "Mean")
def several_operands(call: Call) -> Operand:
    kind = {"Max": "Max", "Min": "Min"}.get(call.node.op, "Add")
    result = call.operand(0)
    for index in range(1, call.count):
        result = binary(call, kind, result, call.operand(index))
    if call.node.op == "Mean" and call.count > 1:
        result = binary(call, "Div", result, number(call.count))
    return call.as_tensor(result)


@lowers(*_UNARY)
def one_operand(call: Call) -> Tensor:
    x = call.operand(0)
    if is_integer(kind_of(x)) and call.node.op in ("Abs", "Neg", "Relu", "Sign"):
        return _of_whole(call, call.as_tensor(x))
    return unary(call, call.node.op, call.floats(0))


def _of_whole(call: Call, x: Tensor) -> Tensor:
    zero, op = whole(0), call.node.op
    if op == "Relu":
        return binary(call, "Max", x, zero)
    if op == "Sign":
        return binary(call, "Min", binary(call, "Max", x, whole(-1)), whole(1))
    negative = binary(call, "Sub", zero, x)
    return negative if op == "Neg" else binary(call, "Max", x, negative)


@lowers("Mod")
def mod(call: Call) -> Tensor:
    """x - y * (x / y as a whole number): for fmod without its fraction, otherwise the whole number below."""
    x, y, fmod = call.operand(0), call.operand(1), bool(call.int_attr("fmod", 0))
    if is_integer(kind_of(x)) and is_integer(kind_of(y)):
        return to_integers(call, rest(call, x, y, fmod), kind_of(x))
    quotient = binary(call, "Div", x, y)
    if fmod:
        count = binary(call, "Mul", unary(call, "Floor", unary(call, "Abs", quotient)), unary(call, "Sign", quotient))
    else:
        count = unary(call, "Floor", quotient)
    return binary(call, "Sub", x, binary(call, "Mul", y, count))


@lowers("Greater")
def greater(call: Call) -> Tensor:
    return binary(call, "Less", call.operand(1), call.operand(0))


@lowers("GreaterOrEqual", "LessOrEqual")
def or_equal(call: Call) -> Tensor:
    a, b = (1, 0) if call.node.op == "GreaterOrEqual" else (0, 1)
    less = binary(call, "Less", call.operand(a), call.operand(b))
    return binary(call, "Max", less, binary(call, "Equal", call.operand(a), call.operand(b)))


@lowers("Not")
def logical_not(call: Call) -> Tensor:
    return binary(call, "Equal", call.floats(0), number(0))


@lowers("IsNaN")
def is_nan(call: Call) -> Tensor:
    """A NaN is the only number that does not equal itself."""
    x = call.floats(0)
    return binary(call, "Equal", call.op("Equal", [x, x], x.shape), number(0))


@lowers("IsInf")
def is_inf(call: Call) -> Tensor:
    """What is beyond the largest number of the graph's type."""
    x, most = call.floats(0), float(np.finfo(call.emit.dtype).max)
    sides = call.int_attr("detect_negative", 1), call.int_attr("detect_positive", 1)
    if all(sides):
        return binary(call, "Less", number(most), unary(call, "Abs", x))
    if not any(sides):
        return binary(call, "Less", x, x)
    return binary(call, "Less", number(most), x) if sides[1] else binary(call, "Less", x, number(-most))


@lowers("And", "Or", "Xor")
def logical(call: Call) -> Tensor:
    a, b = call.operand(0), call.operand(1)
    if call.node.op == "Xor":
        return binary(call, "Equal", binary(call, "Equal", a, b), number(0))
    return binary(call, "Mul" if call.node.op == "And" else "Max", a, b)


@lowers("Where")
def where(call: Call) -> Tensor:
    operands = [call.operand(i) for i in range(3)]
    kinds = {kind_of(operand) for operand in operands[1:]}
    if len(kinds) > 1:
        raise call.node.unsupported(f"operands of {' and '.join(sorted(kinds))}s; put a Cast before one")
    kind = kinds.pop()
    if is_integer(kind):
        condition = operands[0]
        operands[0] = to_integers(call, condition) if isinstance(condition, Tensor) else condition.astype(np.int32)
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    return call.op("Where", [call.source(operand) for operand in operands], shape, result=kind)


@lowers("Chosen", domain=OWN)
def chosen(call: Call) -> Tensor:
    """What an If or a Loop leaves, by a condition that the network computes."""
    shapes = [list(call.operand(i).shape) for i in (1, 2)]
    if shapes[0] != shapes[1] or math.prod(call.operand(0).shape) != 1:
        raise replace(call.node, op="If or Loop", domain="").unsupported(
            f"its condition is computed by the network, and results have the shapes {shapes[0]} and {shapes[1]}; "
            "expected one shape, or a constant"
        )
    condition, *results = (call.operand(i) for i in range(3))
    flat = call.reshape(call.as_tensor(condition), (1,))
    y = where(Call(call.node, [flat, *results], call.emit))
    return call.reshape(y, shapes[0])


@lowers("LeakyRelu")
def leaky_relu(call: Call) -> Tensor:
    return unary(call, "LeakyRelu", call.floats(0), call.attr("alpha", 0.01))


@lowers("HardSigmoid")
def hard_sigmoid(call: Call) -> Tensor:
    return unary(call, "HardSigmoid", call.floats(0), call.attr("alpha", 0.2), call.attr("beta", 0.5))


@lowers("HardSwish")
def hard_swish(call: Call) -> Tensor:
    return unary(call, "HardSwish", call.floats(0))


@lowers("Elu")
def elu(call: Call) -> Tensor:
    return unary(call, "Elu", call.floats(0), call.attr("alpha", 1.0), 1.0)


@lowers("Selu")
def selu(call: Call) -> Tensor:
    alpha, gamma = call.attr("alpha", 1.67326319217681884765625), call.attr("gamma", 1.05070102214813232421875)
    return unary(call, "Elu", call.floats(0), alpha * gamma, gamma)


@lowers("Celu")
def celu(call: Call) -> Tensor:
    """alpha * (exp(x / alpha) - 1) below 0: Elu of x / alpha, times alpha."""
    alpha = call.attr("alpha", 1.0)
    scaled = binary(call, "Div", call.floats(0), number(alpha))
    return unary(call, "Elu", scaled, alpha, alpha)


@lowers("ThresholdedRelu")
def thresholded_relu(call: Call) -> Tensor:
    x = call.floats(0)
    return binary(call, "Mul", x, binary(call, "Less", number(call.attr("alpha", 1.0)), x))


@lowers("Softsign")
def softsign(call: Call) -> Tensor:
    x = call.floats(0)
    return binary(call, "Div", x, binary(call, "Add", unary(call, "Abs", x), number(1)))


@lowers("Mish")
def mish(call: Call) -> Tensor:
    x = call.floats(0)
    return binary(call, "Mul", x, unary(call, "Tanh", unary(call, "Softplus", x)))


@lowers("Gelu")
def gelu(call: Call) -> Tensor:
    kind = call.attr("approximate", "none")
    if kind not in ("none", "tanh"):
        raise call.node.unsupported(f"approximate {kind!r}")
    return unary(call, "Gelu" if kind == "none" else "GeluTanh", call.floats(0))


@lowers("Swish")
def swish(call: Call) -> Tensor:
    x, alpha = call.floats(0), call.attr("alpha", 1.0)
    if alpha == 1.0:
        return unary(call, "Silu", x)
    return binary(call, "Mul", x, unary(call, "Sigmoid", binary(call, "Mul", x, number(alpha))))


@lowers("Silu", domain=OWN)
def silu(call: Call) -> Tensor:
    return unary(call, "Silu", call.floats(0))


@lowers("Clip")
def clip(call: Call) -> Tensor:
    if is_integer(kind_of(call.operand(0))) or any(isinstance(call.get(i), Tensor) for i in (1, 2)):
        x = call.operand(0)
        for index, kind in ((1, "Max"), (2, "Min")):
            x = binary(call, kind, x, call.operand(index)) if call.has(index) else x
        return call.as_tensor(x)
    low = call.scalar(1, "the lower limit") if call.has(1) else -math.inf
    high = call.scalar(2, "the upper limit") if call.has(2) else math.inf
    x = call.floats(0)
    if low == 0 and high == math.inf:
        return unary(call, "Relu", x)
    return unary(call, "Clip", x, within_float32(_above_zero(call, low)), within_float32(high))


@lowers("Identity")
def identity(call: Call) -> Operand:
    return call.operand(0)


@lowers("Dropout")
def dropout(call: Call) -> list[Operand | None]:
    x = call.operand(0)
    ratio = call.scalar(1, "the ratio") if call.has(1) else 0.5
    if call.has(2) and call.scalar(2, "training_mode") and ratio:
        raise call.node.unsupported("training_mode")
    return [x, np.broadcast_to(np.True_, x.shape)]  # a view of one element


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
