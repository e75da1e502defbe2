"""Functions of one or two operands that are made of other ops."""

from __future__ import annotations

import numpy as np

from ..emit import Tensor
from ..table import Call, lowers
from .elementwise import binary, number, unary
from .indices import of_two


@lowers("Tan")
def tan(call: Call) -> Tensor:
    x = call.floats(0)
    return binary(call, "Div", unary(call, "Sin", x), unary(call, "Cos", x))


@lowers("Asin")
def asin(call: Call) -> Tensor:
    """atan(x / sqrt(1 - x^2)); at 1 the quotient is infinite, and that of an infinity is pi / 2."""
    x = call.floats(0)
    rest = binary(call, "Mul", binary(call, "Sub", number(1), x), binary(call, "Add", x, number(1)))
    return unary(call, "Atan", binary(call, "Div", x, unary(call, "Sqrt", rest)))


@lowers("Acos")
def acos(call: Call) -> Tensor:
    """2 atan(sqrt((1 - x) / (1 + x)))"""
    x = call.floats(0)
    ratio = binary(call, "Div", binary(call, "Sub", number(1), x), binary(call, "Add", x, number(1)))
    return binary(call, "Mul", unary(call, "Atan", unary(call, "Sqrt", ratio)), number(2))


@lowers("Sinh", "Cosh")
def hyperbolic(call: Call) -> Tensor:
    """sinh as tanh * cosh, which loses nothing near 0."""
    x = call.floats(0)
    both = binary(call, "Add", unary(call, "Exp", x), unary(call, "Exp", unary(call, "Neg", x)))
    cosh = binary(call, "Mul", both, number(0.5))
    return cosh if call.node.op == "Cosh" else binary(call, "Mul", unary(call, "Tanh", x), cosh)


@lowers("Shrink")
def shrink(call: Call) -> Tensor:
    x, bias, limit = call.floats(0), number(call.attr("bias", 0.0)), call.attr("lambd", 0.5)
    below = binary(call, "Mul", binary(call, "Less", x, number(-limit)), binary(call, "Add", x, bias))
    above = binary(call, "Mul", binary(call, "Less", number(limit), x), binary(call, "Sub", x, bias))
    return binary(call, "Add", below, above)


@lowers("Mod")
def mod(call: Call) -> Tensor:
    """x - y * (x / y as a whole number): for fmod without its fraction, otherwise the whole number below."""
    x, y = call.operand(0), call.operand(1)
    if (rest := of_two(call, np.fmod if call.int_attr("fmod", 0) else np.mod, x, y, "int")) is not None:
        return rest
    quotient = binary(call, "Div", x, y)
    if call.int_attr("fmod", 0):
        whole = binary(call, "Mul", unary(call, "Floor", unary(call, "Abs", quotient)), unary(call, "Sign", quotient))
    else:
        whole = unary(call, "Floor", quotient)
    return binary(call, "Sub", x, binary(call, "Mul", y, whole))
