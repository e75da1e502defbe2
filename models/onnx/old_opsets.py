"""Nodes of opsets 7 to 12, as opset 13 writes them. Lowerings know what else differs: the axes of Softmax."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .network import Node, fresh_name

_NEW = 13
# Attributes that became operands: by op the opset that moved them, and their places.
_MOVED: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "Clip": (11, {"min": 1, "max": 2}),
    "Pad": (11, {"pads": 1, "value": 2}),
    "Slice": (10, {"starts": 1, "ends": 2, "axes": 3}),
    "Split": (13, {"split": 1}),
    "Squeeze": (13, {"axes": 1}),
    "TopK": (10, {"k": 1}),
    "Unsqueeze": (13, {"axes": 1}),
    "Upsample": (9, {"scales": 1}),
}
_FLOATS = ("min", "max", "value", "scales")
# What Resize did before it had these attributes: along axes that shrink the second of two modes, as in onnxruntime.
_RESIZED = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": ("floor", "ceil")}


def modernised(nodes: Sequence[Node], opset: int, taken: Collection[str]) -> dict[str, NDArray[Any]]:
    """Changes nodes of an old opset; returns the constants that they then read, with names that are not `taken`.

    Raises:
        UnsupportedNodeError: A node that opset 13 cannot write.
    """
    constants: dict[str, NDArray[Any]] = {}
    if opset >= _NEW:
        return constants
    names = set(taken) | {name for node in nodes for name in (*node.inputs, *node.outputs)}
    for node in nodes:
        if node.domain:
            continue
        since, places = _MOVED.get(node.op, (0, {}))
        if opset < since:
            for attribute, place in places.items():
                if attribute not in node.attributes:
                    continue
                name = fresh_name(f"{attribute}_{len(constants)}", names)
                dtype = np.float32 if attribute in _FLOATS else np.int64
                constants[name] = np.asarray(node.attributes[attribute], dtype)
                node.inputs += [""] * (place + 1 - len(node.inputs))
                node.inputs[place] = name
            node.attributes = {key: value for key, value in node.attributes.items() if key not in places}
            node.opset = _NEW
        _rename(node, opset)
    return constants


def _rename(node: Node, opset: int) -> None:
    if node.op == "BatchNormalization" and node.attributes.get("spatial", 1) != 1:
        raise node.unsupported("spatial = 0, which opset 9 removed")
    if node.op == "Scatter":
        node.op, node.opset = "ScatterElements", _NEW
    if node.op == "Upsample" or (node.op == "Resize" and opset == 10):
        node.op, node.opset = "Resize", _NEW
        node.inputs = [*node.inputs[:1], "", *node.inputs[1:]]
        node.attributes = {**node.attributes, **_RESIZED}
