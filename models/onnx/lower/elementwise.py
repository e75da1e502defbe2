"""Ops of one, two or more operands, element by element."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, lowers, within_float32
from .indices import arithmetic, as_floats, comparable

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


def binary(call: Call, kind: str, a: Operand, b: Operand) -> Tensor:
    """One of our elementwise ops, with numpy's rules for shapes."""
    for operand in (a, b):
        if (operand.kind if isinstance(operand, Tensor) else _kind(operand)) == "int":
            if (y := arithmetic(call, kind, a, b)) is not None:
                return y
            if kind in ("Equal", "Less") and (compared := comparable(call, a, b)) is not None:
                a, b = compared
                break
            raise call.node.unsupported("integers that the network computes are moved, not computed with")
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise call.node.unsupported(f"operands {list(a.shape)} and {list(b.shape)} do not fit each other") from None
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape:
        return call.op(kind, [a, b], shape)
    return call.op(kind, [call.source(a), call.source(b)], shape, {"broadcast": 1})


def _kind(array: np.ndarray) -> str:
    return "float" if array.dtype.kind in "fb" or array.dtype.name == "bfloat16" else "int"


def unary(call: Call, kind: str, x: Tensor, alpha: float = 0.0, beta: float = 0.0) -> Tensor:
    """One of our ops of one operand."""
    return call.op(kind, [x], x.shape, {key: float(v) for key, v in (("alpha", alpha), ("beta", beta)) if v})


def number(value: float) -> np.ndarray:
    """A constant operand of one element."""
    return np.asarray([value], np.float32).reshape(())


@lowers(*_BINARY)
def two_operands(call: Call) -> Tensor:
    return binary(call, _BINARY[call.node.op], call.operand(0), call.operand(1))


@lowers("Pow")
def power(call: Call) -> Tensor:
    """The exponent may be of another type than the base; a constant of whole numbers is taken as floats."""
    exponent = call.operand(1)
    if not isinstance(exponent, Tensor) and exponent.dtype.kind in "iu":
        exponent = exponent.astype(np.float32)
    return binary(call, "Pow", call.operand(0), exponent)


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
    return unary(call, call.node.op, call.floats(0))


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


@lowers("And", "Or", "Xor")
def logical(call: Call) -> Tensor:
    a, b = call.operand(0), call.operand(1)
    if call.node.op == "Xor":
        return binary(call, "Equal", binary(call, "Equal", a, b), number(0))
    return binary(call, "Mul" if call.node.op == "And" else "Max", a, b)


@lowers("Where")
def where(call: Call) -> Tensor:
    operands = [call.operand(i) for i in range(3)]
    for operand in operands:
        if (operand.kind if isinstance(operand, Tensor) else _kind(operand)) == "int":
            raise call.node.unsupported("integers that the network computes are moved, not computed with")
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    return call.op("Where", [call.source(operand) for operand in operands], shape)


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


@lowers("Silu", domain="tcim_lite")
def silu(call: Call) -> Tensor:
    return unary(call, "Silu", call.floats(0))


@lowers("Clip")
def clip(call: Call) -> Tensor:
    low = call.scalar(1, "the lower limit") if call.has(1) else -math.inf
    high = call.scalar(2, "the upper limit") if call.has(2) else math.inf
    x = call.floats(0)
    if low == 0 and high == math.inf:
        return unary(call, "Relu", x)
    return unary(call, "Clip", x, within_float32(low), within_float32(high))


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
    """To floating point, always of the graph's own type, or to bool; of integers also to int32 and int64."""
    from onnx import TensorProto

    x = call.operand(0)
    if not isinstance(x, Tensor) and call.node.op == "CastLike":  # like a value that the network computes
        return x.astype(np.float32 if call.tensor(1).kind == "float" else np.int64)
    x = call.as_tensor(x)
    to = call.int_attr("to", 0) if call.node.op == "Cast" else _type_of(call)
    if to in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16):
        return x if x.kind == "float" else as_floats(call, x)
    if to in (TensorProto.INT32, TensorProto.INT64) and x.kind == "int":
        return x
    if to == TensorProto.BOOL:
        x = x if x.kind == "float" else as_floats(call, x)  # no other integer becomes 0
        return binary(call, "Equal", binary(call, "Equal", x, number(0)), number(0))
    raise call.node.unsupported("a cast between integers and floating point numbers that the network computes")


def _type_of(call: Call) -> int:
    from onnx import TensorProto, helper

    like = call.operand(1)
    if isinstance(like, Tensor):
        return int(TensorProto.FLOAT if like.kind == "float" else TensorProto.INT64)
    return int(helper.np_dtype_to_tensor_dtype(like.dtype))
