"""What becomes part of the weights of a convolution or of a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..network import OWN, Node
from .view import Fusion, View


def conv_pad(node: Node, view: View) -> Iterator[Fusion]:
    """Pad of zeros along the planes, then Conv: the pads of the convolution. Keras writes strided layers so."""
    pad = view.made_by(node.inputs[0], "Pad") if node.op == "Conv" and not node.domain else None
    if pad is None or pad.attributes.get("mode", "constant") != "constant" or len(pad.inputs) < 2:
        return
    value = pad.inputs[2] if len(pad.inputs) > 2 else ""
    shape = view.shape(pad.inputs[0])
    auto = node.attributes.get("auto_pad", "NOTSET")
    if (value and view.number(value) != 0) or shape is None or auto not in ("NOTSET", "VALID"):
        return
    rank = len(shape)
    axes = view.constants[pad.inputs[3]].reshape(-1).tolist() if len(pad.inputs) > 3 and pad.inputs[3] else range(rank)
    along = np.zeros((2, rank), np.int64)
    pads = np.asarray(view.constants[pad.inputs[1]]).reshape(-1)
    own = list(node.attributes.get("pads", ())) if auto == "NOTSET" else []
    if len(pads) != 2 * len(axes) or len(own) not in (0, 2 * (rank - 2)):
        return  # numpy would stretch them
    along[:, list(axes)] = pads.reshape(2, -1)
    if along[:, :2].any() or (along < 0).any():
        return
    own = own or [0] * (2 * (rank - 2))
    attributes = {**node.attributes, "auto_pad": "NOTSET", "pads": (along[:, 2:].reshape(-1) + own).tolist()}
    yield Fusion([replace(node, inputs=[pad.inputs[0], *node.inputs[1:]], attributes=attributes)], [pad])


def conv_batch_norm(node: Node, view: View) -> Iterator[Fusion]:
    """Conv or ConvTranspose, then BatchNormalization: the weights of the convolution."""
    if (
        node.op != "BatchNormalization"
        or node.domain
        or node.attributes.get("training_mode", 0)
        or any(node.outputs[1:])
    ):
        return
    conv = view.made_by(node.inputs[0], "Conv", "ConvTranspose") if len(node.inputs) == 5 else None
    if conv is None or any(name not in view.constants for name in node.inputs[1:]):
        return
    scale, bias, mean, variance = (np.asarray(view.constants[name], np.float64) for name in node.inputs[1:])
    if not scale.shape == bias.shape == mean.shape == variance.shape:
        return
    factor = scale / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    yield from _into_conv(node, conv, view, factor, bias - mean * factor)


def conv_affine(node: Node, view: View) -> Iterator[Fusion]:
    """Conv or ConvTranspose, then a constant for each channel as factor or summand: its weights and bias.

    As TensorFlow's converters write a BatchNormalization.
    """
    if node.op not in ("Mul", "Add", "Sub") or node.domain or len(node.inputs) != 2:
        return
    for made, constant in (node.inputs, node.inputs[::-1])[: 1 if node.op == "Sub" else 2]:
        conv, array = view.made_by(made, "Conv", "ConvTranspose"), view.constants.get(constant)
        shape = view.shape(made)
        if conv is None or array is None or shape is None or array.dtype.kind != "f":
            continue
        extents = (1,) * (len(shape) - array.ndim) + array.shape
        if extents != (1, shape[1], *[1] * (len(shape) - 2)):
            continue
        numbers = np.asarray(array, np.float64).reshape(-1)
        if node.op == "Mul":
            yield from _into_conv(node, conv, view, numbers, np.zeros(1))
        else:
            yield from _into_conv(node, conv, view, np.ones_like(numbers), -numbers if node.op == "Sub" else numbers)


def _into_conv(
    node: Node, conv: Node, view: View, factor: NDArray[np.float64], shift: NDArray[np.float64]
) -> Iterator[Fusion]:
    """The convolution with its outputs times `factor`, plus `shift`, in place of `node`."""
    constants = view.constants
    if any(name not in constants for name in filter(None, conv.inputs[1:])):
        return
    weight = np.asarray(constants[conv.inputs[1]], np.float32)
    # A ConvTranspose has its outputs on axis 1, those of each group by themselves.
    groups = int(conv.attributes.get("group", 1)) if conv.op == "ConvTranspose" else 1
    outputs = weight.shape[0] if conv.op == "Conv" else weight.shape[1] * groups
    if weight.ndim < 3 or weight.shape[0] % groups or factor.shape != (outputs,) or not np.isfinite(factor).all():
        return
    has_bias = len(conv.inputs) > 2 and conv.inputs[2]
    before = np.asarray(constants[conv.inputs[2]], np.float64) if has_bias else np.zeros(1)
    spatial = [1] * (weight.ndim - 2)
    if conv.op == "Conv":
        spread = factor.reshape(-1, 1, *spatial)
    else:
        spread = np.repeat(factor.reshape(groups, -1), weight.shape[0] // groups, 0).reshape(
            *weight.shape[:2], *spatial
        )
    bias = before * factor + shift
    arrays = [(weight * spread).astype(np.float32), *([bias.astype(np.float32)] if has_bias or shift.any() else [])]
    names = [view.fresh(f"{node.outputs[0]}/{part}") for part in ("weight", "bias")[: len(arrays)]]
    merged = replace(conv, inputs=[conv.inputs[0], *names], outputs=node.outputs[:1])
    yield Fusion([merged], [conv], dict(zip(names, arrays, strict=True)))


def matmul_bias(node: Node, view: View) -> Iterator[Fusion]:
    """MatMul, then Add of a constant vector: the bias of a Linear."""
    if node.op != "Add" or node.domain or len(node.inputs) != 2:
        return
    constants = view.constants
    for product, bias in (node.inputs, node.inputs[::-1]):
        matmul = view.made_by(product, "MatMul")
        if matmul is None or bias not in constants or matmul.inputs[1] not in constants:
            continue
        weight = constants[matmul.inputs[1]]
        if matmul.inputs[0] not in constants and weight.ndim == 2 and constants[bias].shape == weight.shape[1:]:
            inputs = [*matmul.inputs, bias]
            yield Fusion([replace(matmul, op="MatMulBias", domain=OWN, inputs=inputs, outputs=node.outputs)], [matmul])


def is_linear(node: Node, view: View) -> bool:
    """Whether a node is a product with a constant matrix, plus a constant vector or nothing."""
    if (node.op, node.domain) not in (("MatMul", ""), ("MatMulBias", OWN)) or node.inputs[0] in view.constants:
        return False
    arrays = [view.constants.get(name) for name in node.inputs[1:]]
    return all(a is not None and a.dtype.kind == "f" for a in arrays) and view.constants[node.inputs[1]].ndim == 2


def scaled_linear(
    node: Node, view: View, factors: float | NDArray[np.float64], bias: bool = True
) -> tuple[Node, dict[str, NDArray[np.float32]]]:
    """The same product with its columns, or all of it, times `factors`, its vector too if `bias`; its new constants."""
    weight = np.asarray(view.constants[node.inputs[1]], np.float32)
    constants = {view.fresh(f"{node.outputs[0]}/weight"): (weight * factors).astype(np.float32)}
    rest = list(node.inputs[2:])
    if rest and bias:
        vector = np.asarray(view.constants[rest[0]], np.float64) * factors
        rest = [view.fresh(f"{node.outputs[0]}/bias")]
        constants[rest[0]] = vector.astype(np.float32)
    return replace(node, inputs=[node.inputs[0], next(iter(constants)), *rest]), constants
