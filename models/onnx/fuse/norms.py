"""LayerNorm and RMSNorm, written out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..network import Node
from .view import Fusion, View, as_vector

_NORMS = ("LayerNormalization", "RMSNormalization")
_MOST_COLUMNS = 1 << 20  # of a norm: no network comes near, and a file may ask for any extent


@dataclass(frozen=True, slots=True)
class _Scaled:
    """x / sqrt(mean(x^2) + epsilon), the mean over the last axes.

    Attributes:
        x: Its name.
        epsilon: Positive.
        axes: Counted from the front.
        nodes: What computes it, without the last node.
    """

    x: str
    epsilon: float
    axes: list[int]
    nodes: list[Node]


def normalisation(node: Node, view: View) -> Iterator[Fusion]:
    """A norm without weights: of x - mean(x) it is a LayerNorm, of any other x an RMSNorm."""
    for found in _scaled(node, view):
        shape = view.shape(found.x)
        if shape is None or math.prod(shape[found.axes[0] :]) > _MOST_COLUMNS:
            continue
        ones = view.fresh(f"{node.outputs[0]}/scale")
        constants = {ones: np.ones(shape[found.axes[0] :], np.float32)}
        attributes = {"axis": found.axes[0] - len(shape), "epsilon": found.epsilon}
        difference = view.made_by(found.x, "Sub")
        if difference is not None:
            x, mean = difference.inputs
            middle = view.made_by(mean, "ReduceMean")
            if middle is not None and middle.inputs[0] == x and _axes(middle, view) == found.axes:
                merged = replace(node, op="LayerNormalization", inputs=[x, ones], attributes=attributes)
                yield Fusion([merged], [*found.nodes, difference, middle], constants)
        merged = replace(node, op="RMSNormalization", inputs=[found.x, ones], attributes=attributes)
        yield Fusion([merged], found.nodes, constants)


def affine(node: Node, view: View) -> Iterator[Fusion]:
    """A norm without weights, times a constant: its scale. A LayerNorm without bias, plus a constant: its bias."""
    if node.op not in ("Mul", "Add") or node.domain or len(node.inputs) != 2:
        return
    for made, constant in (node.inputs, node.inputs[::-1]):
        norm, array = view.made_by(made, *_NORMS), view.constants.get(constant)
        scale = view.constants.get(norm.inputs[1]) if norm is not None else None
        if norm is None or array is None or scale is None or len([name for name in norm.inputs if name]) > 2:
            continue
        vector = as_vector(array, scale.shape)
        if vector is None or (node.op == "Mul" and (scale != 1).any()):
            continue
        name = view.fresh(f"{node.outputs[0]}/{'scale' if node.op == 'Mul' else 'bias'}")
        if node.op == "Mul":
            yield Fusion([replace(norm, inputs=[norm.inputs[0], name], outputs=node.outputs)], [norm], {name: vector})
        elif norm.op == "LayerNormalization":
            yield Fusion([replace(norm, inputs=[*norm.inputs[:2], name], outputs=node.outputs)], [norm], {name: vector})


def shifted(node: Node, view: View) -> Iterator[Fusion]:
    """A LayerNorm as TensorFlow writes it: x * g + (bias - mean(x) * g) with g = scale / sqrt(variance + epsilon)."""
    if node.op != "Add" or node.domain or len(node.inputs) != 2:
        return
    for product, rest in (node.inputs, node.inputs[::-1]):
        first, difference = view.made_by(product, "Mul"), view.made_by(rest, "Sub")
        second = view.made_by(difference.inputs[1], "Mul") if difference is not None else None
        if first is None or difference is None or second is None:
            continue
        for x, gain in (first.inputs, first.inputs[::-1]):
            scaled = view.made_by(gain, "Mul")
            if gain not in second.inputs or scaled is None:
                continue
            mean = second.inputs[1 - second.inputs.index(gain)]
            middle = view.made_by(mean, "ReduceMean")
            bias, axes = view.constants.get(difference.inputs[0]), _axes(middle, view) if middle is not None else None
            if middle is None or middle.inputs[0] != x or axes is None or bias is None:
                continue
            nodes = [first, difference, second, scaled, middle]
            yield from _as_layer_norm(node, view, x, mean, axes, scaled, bias, nodes)


def _as_layer_norm(
    node: Node,
    view: View,
    x: str,
    mean: str,
    axes: list[int],
    scaled: Node,
    bias: NDArray[Any],
    nodes: list[Node],
) -> Iterator[Fusion]:
    shape = view.shape(x)
    for inverse, constant in (scaled.inputs, scaled.inputs[::-1]):
        scale, root = view.constants.get(constant), _root(view, inverse, inverse=True)
        if scale is None or root is None or shape is None:
            continue
        vectors = [as_vector(array, shape[axes[0] :]) for array in (scale, bias)]
        for deviation in _mean_square(view, root, None):
            minus = view.made_by(deviation.x, "Sub")
            if minus is None or minus.inputs != [x, mean] or deviation.axes != axes:
                continue
            names = [view.fresh(f"{node.outputs[0]}/{part}") for part in ("scale", "bias")]
            constants = {name: vector for name, vector in zip(names, vectors, strict=True) if vector is not None}
            if len(constants) == 2:
                attributes = {"axis": axes[0] - len(shape), "epsilon": deviation.epsilon}
                merged = replace(node, op="LayerNormalization", inputs=[x, *names], attributes=attributes)
                yield Fusion([merged], [*nodes, *deviation.nodes, minus], constants)


def _scaled(node: Node, view: View) -> Iterator[_Scaled]:
    """x / sqrt(mean(x^2) + epsilon), or x times its reciprocal."""
    if node.domain or node.op not in ("Mul", "Div") or len(node.inputs) != 2:
        return
    for x, other in (node.inputs, node.inputs[::-1]) if node.op == "Mul" else (node.inputs,):
        if (root := _root(view, other, inverse=node.op == "Mul")) is not None:
            yield from _mean_square(view, root, x)


def _mean_square(view: View, root: tuple[str, list[Node]], x: str | None) -> Iterator[_Scaled]:
    """What the root is taken of: mean(x^2) + epsilon, of any x if it is None."""
    total = view.made_by(root[0], "Add")
    for mean, constant in (total.inputs, total.inputs[::-1]) if total is not None else ():
        epsilon = view.number(constant)
        middle = view.made_by(mean, "ReduceMean")
        if total is None or middle is None or epsilon is None or not 0 < epsilon < math.inf:
            continue
        axes, square = _axes(middle, view), _square_of(view, middle.inputs[0], x)
        if axes is not None and square is not None:
            yield _Scaled(square.inputs[0], epsilon, axes, [*root[1], total, middle, square])


def _root(view: View, name: str, inverse: bool) -> tuple[str, list[Node]] | None:
    """Whose square root a value is, or the inverse of its square root; and the nodes that take it."""
    power = view.made_by(name, "Pow")
    if power is not None:
        wanted = -0.5 if inverse else 0.5
        return (power.inputs[0], [power]) if view.number(power.inputs[1]) == wanted else None
    if not inverse:
        root = view.made_by(name, "Sqrt")
        return (root.inputs[0], [root]) if root is not None else None
    below = view.made_by(name, "Reciprocal", "Div")
    if below is None or (below.op == "Div" and view.number(below.inputs[0]) != 1.0):
        return None
    found = _root(view, below.inputs[-1], inverse=False)
    return (found[0], [*found[1], below]) if found is not None else None


def _square_of(view: View, name: str, x: str | None) -> Node | None:
    node = view.made_by(name, "Pow", "Mul")
    if node is None or x not in (None, node.inputs[0]):
        return None
    is_square = node.inputs[1] == node.inputs[0] if node.op == "Mul" else view.number(node.inputs[1]) == 2.0
    return node if is_square else None


def _axes(mean: Node, view: View) -> list[int] | None:
    """The axes of a mean that keeps them, if they are the last ones."""
    shape = view.shape(mean.inputs[0])
    given = mean.attributes.get("axes")
    if len(mean.inputs) > 1 and mean.inputs[1]:
        array = view.constants.get(mean.inputs[1])
        given = None if array is None else [int(axis) for axis in array.reshape(-1)]
    if shape is None or not given or mean.attributes.get("keepdims", 1) != 1:
        return None
    axes = sorted(axis % len(shape) for axis in given if -len(shape) <= axis < len(shape))
    last = list(range(len(shape) - len(axes), len(shape)))
    return axes if axes == last and len(axes) == len(given) else None
