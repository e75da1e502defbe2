"""Activations: functions of one operand, and what they are made of."""

from __future__ import annotations

import math

from ..emit import Tensor, is_integer
from ..network import OWN
from ..table import Call, lowers, within_float32
from .elementwise import above_zero, binary, number, unary
from .integers import kind_of


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
    return unary(call, "Clip", x, within_float32(above_zero(call, low)), within_float32(high))
