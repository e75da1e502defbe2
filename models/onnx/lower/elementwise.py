"""Ops of one, two or more operands, element by element."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..network import OWN
from ..table import Call, Operand, lowers
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


def above_zero(call: Call, value: float) -> float:
    """What keeps a divisor from 0 does so in float16 too, where 1e-12 would be 0."""
    return _TINIEST if 0 < value < _TINIEST and call.emit.dtype == "float16" else value


def _operand_above_zero(call: Call, operand: Operand) -> Operand:
    if isinstance(operand, Tensor) or operand.size != 1:
        return operand
    value = float(operand.reshape(-1)[0])
    least = above_zero(call, value)
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
        raise call.node.unsupported(
            f"its condition is computed by the network, and results have the shapes {shapes[0]} and {shapes[1]}; "
            "expected one shape, or a constant"
        )
    condition, *results = (call.operand(i) for i in range(3))
    flat = call.reshape(call.as_tensor(condition), (1,))
    y = where(Call(call.node, [flat, *results], call.emit))
    return call.reshape(y, shapes[0])


@lowers("Dropout")
def dropout(call: Call) -> list[Operand | None]:
    x = call.operand(0)
    ratio = call.scalar(1, "the ratio") if call.has(1) else 0.5
    if call.has(2) and call.scalar(2, "training_mode") and ratio:
        raise call.node.unsupported("training_mode")
    return [x, np.broadcast_to(np.True_, x.shape)]  # a view of one element
