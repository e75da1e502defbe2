"""Attention written out, onto the ops that there are: its scale becomes part of weights, its transposes become fewer.

softmax(s q k^T + mask) v stays two MatMuls and a Softmax. The factors s, and those that exporters put on q and k, would
each be a pass over the scores or over q and k; so would the constant that ends a block of ConvNeXt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedNodeError
from ..fold import can_fold, fold
from ..network import Node
from .linear import is_linear, scaled_linear
from .view import Fusion, View, turn_of

_LAYOUT = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Split", "Slice", "Gather", "Identity")
_MOST_PLACES = 1 << 24  # elements of a value whose columns are followed
_SMALLEST, _LARGEST = 2.0**-10, 2.0**10  # of a factor: float16 weights must stay numbers


def transposed_twice(node: Node, view: View) -> Iterator[Fusion]:
    """A Transpose of a Transpose: one."""
    if node.op != "Transpose" or node.domain:
        return
    name, passed = node.inputs[0], []
    while (identity := view.made_by(name, "Identity")) is not None:
        name = identity.inputs[0]
        passed.append(identity)
    before = view.made_by(name, "Transpose")
    if before is None:
        return
    rank = len(view.shape(before.inputs[0]) or ())
    first, second = (turn_of(part, rank) for part in (before, node))
    if sorted(first) == sorted(second) == list(range(rank)):
        axes = [first[axis] for axis in second]
        yield Fusion([replace(node, inputs=before.inputs, attributes={"perm": axes})], [*passed, before])


def scale_into_columns(node: Node, view: View) -> Iterator[Fusion]:
    """Constant factors of the columns of a product with a constant matrix: part of the matrix and its bias.

    The factor may stand behind ops that move elements, if nobody else reads the columns that it scales; and behind
    q k^T, whose factor is one of q, or of k.
    """
    if node.op not in ("Mul", "Div") or node.domain or len(node.inputs) != 2:
        return
    sides = (node.inputs, node.inputs[::-1]) if node.op == "Mul" else (node.inputs,)
    for x, constant in sides:
        factor = view.constants.get(constant)
        if (
            factor is None
            or factor.dtype.kind != "f"
            or not factor.size
            or view.shape(x) != view.shape(node.outputs[0])
        ):
            continue
        with np.errstate(all="ignore"):
            values = np.asarray(factor, np.float64) if node.op == "Mul" else 1 / np.asarray(factor, np.float64)
        if not ((np.abs(values) >= _SMALLEST) & (np.abs(values) <= _LARGEST)).all():
            continue
        passed = replace(node, op="Identity", inputs=[x], attributes={})
        changed = _scaled(view, x, values, node)
        if changed is not None:
            yield Fusion([passed], (), changed[2], [changed[:2]])
        scores = view.made_by(x, "MatMul")
        if scores is None or values.size != 1 or view.readers(x) != [node] or view.is_output(x):
            continue
        for side in scores.inputs:
            changed = _scaled(view, side, values, scores) if side not in view.constants else None
            if changed is not None:
                yield Fusion([passed], (), changed[2], [changed[:2]])


def _scaled(
    view: View, name: str, values: NDArray[np.float64], reader: Node
) -> tuple[Node, Node, dict[str, NDArray[np.float32]]] | None:
    """The product whose columns `reader` reads as `name`, and the same with scaled columns."""
    path = _path(view, name)
    if path is None:
        return None
    product, steps = path
    weight = np.asarray(view.constants[product.inputs[1]], np.float32)
    columns = _columns(view, product, weight.shape[1], steps, reader)
    shape = view.shape(name)
    if columns is None or shape is None:
        return None
    spread = np.broadcast_to(values, shape).reshape(-1)
    factors = np.ones(weight.shape[1])
    factors[columns] = spread
    if (factors[columns] != spread).any():
        return None  # not one factor for each column
    return product, *scaled_linear(product, view, factors)


def _path(view: View, name: str) -> tuple[Node, list[Node]] | None:
    """The product with a constant matrix that `name` is made of, and the nodes between that only move elements."""
    steps: list[Node] = []
    while True:
        node = view.producer(name)
        if node is None or view.is_output(name):
            return None
        if is_linear(node, view):
            return node, steps[::-1]
        if node.op not in _LAYOUT or node.domain or any(part not in view.constants for part in node.inputs[1:]):
            return None
        steps.append(node)
        name = node.inputs[0]


def _columns(view: View, product: Node, count: int, steps: list[Node], reader: Node) -> NDArray[np.int64] | None:
    """For each element at the end of the steps, its column of the product; None if others read these columns too."""
    shape = view.shape(product.outputs[0])
    if shape is None or math.prod(shape) > _MOST_PLACES:
        return None
    name, here = product.outputs[0], np.broadcast_to(np.arange(count), shape)
    others: list[NDArray[np.int64]] = []
    for step, after in zip(steps, [*steps, reader][1:], strict=True):
        others += _read_by_others(view, name, here, step)
        results = dict(zip(step.outputs, _moved(view, step, here) or [], strict=False))
        wanted = next((part for part in step.outputs if part in after.inputs), None)
        if wanted is None or wanted not in results:
            return None
        read = [part for part in step.outputs if part and (view.readers(part) or view.is_output(part))]
        others += [results[part] for part in read if part != wanted]
        name, here = wanted, results[wanted]
    others += [here] if view.readers(name) != [reader] or view.is_output(name) else []
    taken = np.unique(here)
    return None if any(np.isin(taken, other).any() for other in others) else here.reshape(-1)


def _read_by_others(view: View, name: str, here: NDArray[np.int64], step: Node) -> list[NDArray[np.int64]]:
    """The columns that other nodes than `step` read of a value."""
    found: list[NDArray[np.int64]] = []
    for reader in view.readers(name):
        if reader is not step:
            moved = _moved(view, reader, here) if reader.op in _LAYOUT else None
            found += [here] if moved is None else moved
    return found


def _moved(view: View, node: Node, here: NDArray[np.int64]) -> list[NDArray[np.int64]] | None:
    """The results of a node that moves elements."""
    rest = [view.constants.get(name) for name in node.inputs[1:]]
    if any(array is None for array in rest) or not can_fold(node, [here, *rest]):
        return None
    try:
        return [np.asarray(array) for array in fold(node, [here, *rest])]
    except UnsupportedNodeError:
        return None
