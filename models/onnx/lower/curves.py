"""Functions of one or two operands that are made of other ops."""

from __future__ import annotations

from ..emit import Tensor
from ..table import Call, lowers
from .elementwise import binary, number, unary


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


@lowers("Asinh", "Acosh")
def inverse_hyperbolic(call: Call) -> Tensor:
    """log(x + sqrt(x^2 + 1)) of |x|, with the sign of x, or log(x + sqrt(x^2 - 1))."""
    x = call.floats(0)
    if call.node.op == "Acosh":
        root = unary(call, "Sqrt", binary(call, "Sub", call.op("Mul", [x, x], x.shape), number(1)))
        return unary(call, "Log", binary(call, "Add", x, root))
    size = unary(call, "Abs", x)
    root = unary(call, "Sqrt", binary(call, "Add", call.op("Mul", [x, x], x.shape), number(1)))
    return binary(call, "Mul", unary(call, "Log", binary(call, "Add", size, root)), unary(call, "Sign", x))


@lowers("Atanh")
def atanh(call: Call) -> Tensor:
    x = call.floats(0)
    ratio = binary(call, "Div", binary(call, "Add", x, number(1)), binary(call, "Sub", number(1), x))
    return binary(call, "Mul", unary(call, "Log", ratio), number(0.5))


@lowers("Shrink")
def shrink(call: Call) -> Tensor:
    x, bias, limit = call.floats(0), number(call.attr("bias", 0.0)), call.attr("lambd", 0.5)
    below = binary(call, "Mul", binary(call, "Less", x, number(-limit)), binary(call, "Add", x, bias))
    above = binary(call, "Mul", binary(call, "Less", number(limit), x), binary(call, "Sub", x, bias))
    return binary(call, "Add", below, above)
