"""Normalisations."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor
from ..table import Call, Operand, lowers
from .elementwise import binary, number, unary
from .reduce import last, reduced

_MAX_NEIGHBOURS = 4096  # of LRN


def _epsilon(call: Call) -> float:
    """What keeps a norm from dividing by 0. Our ops need one: 0 becomes the smallest normal number."""
    value = float(call.attr("epsilon", 1e-5))
    if value < 0:
        raise call.node.unsupported(f"epsilon is {value}, expected 0 or more")
    return value or float(np.finfo(np.float32).tiny)


def normalised(call: Call, x: Tensor, columns: int, epsilon: float) -> Tensor:
    """x - mean, over its deviation, of every `columns` elements in a row; the shape stays."""
    rows = call.reshape(x, (math.prod(x.shape) // columns, columns))
    y = call.op("LayerNorm", [rows], rows.shape, {"epsilon": float(epsilon)})
    return call.reshape(y, x.shape)


@lowers("BatchNormalization")
def batch_norm(call: Call) -> Tensor:
    """As one product and one sum."""
    x = call.floats(0)
    if call.int_attr("training_mode", 0) or any(call.node.outputs[1:]):
        raise call.node.unsupported("training_mode")
    epsilon = float(call.attr("epsilon", 1e-5))
    if any(isinstance(call.operand(i), Tensor) for i in range(1, 5)):
        scale, bias, mean, variance = (call.floats(i) for i in range(1, 5))
        factor = binary(call, "Div", scale, unary(call, "Sqrt", binary(call, "Add", variance, number(epsilon))))
        return _affine(call, x, factor, binary(call, "Sub", bias, binary(call, "Mul", mean, factor)))
    constants = (np.asarray(call.operand(i), np.float64) for i in range(1, 5))
    own_scale, own_bias, own_mean, own_variance = constants
    factors = own_scale / np.sqrt(own_variance + epsilon)
    return _affine(call, x, factors.astype(np.float32), (own_bias - own_mean * factors).astype(np.float32))


@lowers("LayerNormalization")
def layer_norm(call: Call) -> list[Tensor | None]:
    x = call.floats(0)
    axis = call.axis(call.int_attr("axis", -1), len(x.shape))
    return [_layer_norm(call, x, axis), *_statistics(call, x, axis)]


def _layer_norm(call: Call, x: Tensor, axis: int) -> Tensor:
    columns = math.prod(x.shape[axis:])
    epsilon = _epsilon(call)
    scale, bias = call.operand(1), call.get(2)
    fixed = [operand for operand in (scale, bias) if operand is not None]
    if all(not isinstance(operand, Tensor) and operand.shape == x.shape[axis:] for operand in fixed):
        rows = call.reshape(x, (math.prod(x.shape) // columns, columns))
        weights = [call.emit.weight(np.asarray(operand).reshape(-1), "float32") for operand in fixed]
        return call.reshape(call.op("LayerNorm", [rows, *weights], rows.shape, {"epsilon": float(epsilon)}), x.shape)
    y = binary(call, "Mul", normalised(call, x, columns, epsilon), scale)
    return y if bias is None else binary(call, "Add", y, bias)


def _statistics(call: Call, x: Tensor, axis: int) -> list[Tensor | None]:
    """The mean and 1 / deviation, where they are asked for."""
    if not any(call.node.outputs[1:]):
        return []
    axes = list(range(axis, len(x.shape)))
    mean = reduced(call, "ReduceMean", x, axes, True)
    difference = binary(call, "Sub", x, mean)
    square = reduced(call, "ReduceMean", call.op("Mul", [difference, difference], x.shape), axes, True)
    deviation = unary(call, "Sqrt", binary(call, "Add", square, number(_epsilon(call))))
    return [mean, unary(call, "Reciprocal", deviation)]


@lowers("RMSNormalization")
def rms_norm(call: Call) -> Tensor:
    x, scale = call.floats(0), call.operand(1)
    axis = call.axis(call.int_attr("axis", -1), len(x.shape))
    columns = math.prod(x.shape[axis:])
    rows = call.reshape(x, (math.prod(x.shape) // columns, columns))
    epsilon = {"epsilon": _epsilon(call)}
    if not isinstance(scale, Tensor) and scale.shape == x.shape[axis:]:
        weight = call.emit.weight(np.asarray(scale).reshape(-1), "float32")
        return call.reshape(call.op("RMSNorm", [rows, weight], rows.shape, epsilon), x.shape)
    ones = call.emit.weight(np.ones(call.places(columns)), "float32")
    return binary(call, "Mul", call.reshape(call.op("RMSNorm", [rows, ones], rows.shape, epsilon), x.shape), scale)


@lowers("InstanceNormalization")
def instance_norm(call: Call) -> Tensor:
    x = call.floats(0)
    y = normalised(call, x, math.prod(x.shape[2:]), _epsilon(call))
    return _affine(call, y, call.operand(1), call.operand(2))


@lowers("GroupNormalization")
def group_norm(call: Call) -> Tensor:
    x, groups = call.floats(0), call.int_attr("num_groups", 1)
    if groups < 1 or x.shape[1] % groups:
        raise call.node.unsupported(f"{groups} groups of {x.shape[1]} channels")
    columns = x.shape[1] // groups * math.prod(x.shape[2:])
    y = normalised(call, x, columns, _epsilon(call))
    if call.node.opset < 21:  # one number for each group
        y = call.reshape(y, (x.shape[0], groups, columns))
        return call.reshape(_affine(call, y, call.operand(1), call.operand(2)), x.shape)
    return _affine(call, y, call.operand(1), call.operand(2))


def _affine(call: Call, y: Tensor, scale: Operand, bias: Operand) -> Tensor:
    """scale and bias for each channel, axis 1."""
    for kind, operand in (("Mul", scale), ("Add", bias)):
        shape = (*operand.shape, *[1] * (len(y.shape) - 2))
        spread = call.reshape(operand, shape) if isinstance(operand, Tensor) else np.asarray(operand).reshape(shape)
        y = binary(call, kind, y, spread)
    return y


@lowers("LpNormalization")
def lp_norm(call: Call) -> Tensor:
    x = call.floats(0)
    axis, p = call.axis(call.int_attr("axis", -1), len(x.shape)), call.int_attr("p", 2)
    if p not in (1, 2):
        raise call.node.unsupported(f"p = {p}")
    size = reduced(call, "ReduceL1" if p == 1 else "ReduceSumSquare", x, [axis], True)
    # The smallest fp16 instead of 0: what is all zeros stays so.
    size = binary(call, "Max", size if p == 1 else unary(call, "Sqrt", size), number(6e-8))
    return binary(call, "Div", x, size)


@lowers("MeanVarianceNormalization")
def mean_variance(call: Call) -> Tensor:
    x = call.floats(0)
    axes = [call.axis(axis, len(x.shape)) for axis in call.attr("axes", [0, 2, 3])]
    flat, order = last(call, x, axes)
    y = call.reshape(normalised(call, flat, flat.shape[-1], 1e-9), [x.shape[i] for i in order])
    return call.transpose(y, [order.index(i) for i in range(len(order))])


@lowers("LRN")
def lrn(call: Call) -> Tensor:
    """x / (bias + alpha / size * the sum of squares of neighbouring channels) ^ beta."""
    x, size = call.floats(0), call.int_attr("size", 1)
    alpha, beta, bias = call.attr("alpha", 1e-4), call.attr("beta", 0.75), call.attr("bias", 1.0)
    if not 1 <= size <= _MAX_NEIGHBOURS:
        raise call.node.unsupported(f"size {size}; expected 1 to {_MAX_NEIGHBOURS}")
    n, c, inner = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    squares = call.reshape(call.op("Mul", [x, x], x.shape), (n, 1, c, inner))
    what = {
        "kernel": [size, 1],
        "strides": [1, 1],
        "pads": [(size - 1) // 2, 0],
        "dilations": [1, 1],
        "upsample": [1, 1],
        "extent": [c + 2 * size, inner],
    }
    mean = call.reshape(call.op("AveragePool", [squares], (n, 1, c, inner), what), x.shape)
    base = binary(call, "Add", binary(call, "Mul", mean, number(alpha)), number(bias))
    return binary(call, "Div", x, binary(call, "Pow", base, number(beta)))
