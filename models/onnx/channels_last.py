"""Nodes of onnxruntime whose channels are the last axis, which its optimisers write for quantised convolutions.

Each becomes the op with channels on axis 1, between two Transposes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from .network import Node, fresh_name

_DOMAIN = "com.microsoft"
# What each becomes, and its domain.
_OPS = {
    "QLinearConv": ("QLinearConv", ""),
    "NhwcMaxPool": ("MaxPool", ""),
    "QLinearAveragePool": ("QLinearAveragePool", _DOMAIN),
}
_OPSET = 13  # of ONNX's ops that they become


def channels_first(nodes: Sequence[Node], constants: Mapping[str, NDArray[Any]]) -> list[Node]:
    """The nodes with channels on axis 1. One whose number of axes is not known stays as it is."""
    names: set[str] = set()
    result: list[Node] = []
    for node in nodes:
        if node.domain != _DOMAIN or node.op not in _OPS:
            result.append(node)
            continue
        op, domain = _OPS[node.op]
        opset = node.opset if domain else _OPSET
        attributes = {key: value for key, value in node.attributes.items() if key != "channels_last"}
        plain = replace(node, op=op, domain=domain, opset=opset, attributes=attributes)
        rank = _rank(node, constants)
        if node.op != "NhwcMaxPool" and not node.attributes.get("channels_last", 0):
            result.append(plain)
        elif rank < 3 or not node.inputs or not node.outputs:
            result.append(node)
        else:
            names = names or {*constants, *(name for each in nodes for name in (*each.inputs, *each.outputs))}
            first, made = (fresh_name(f"{node.outputs[0][-200:]}/{what}", names) for what in ("first", "made"))
            to_first = [0, rank - 1, *range(1, rank - 1)]
            to_last = [0, *range(2, rank), 1]
            result += [
                _transpose(node, node.inputs[0], first, to_first),
                replace(plain, inputs=[first, *node.inputs[1:]], outputs=[made]),
                _transpose(node, made, node.outputs[0], to_last),
            ]
    return result


def _rank(node: Node, constants: Mapping[str, NDArray[Any]]) -> int:
    """How many axes the node's tensor has; 0 if nothing says it."""
    kernel = node.attributes.get("kernel_shape")
    if isinstance(kernel, list):
        return len(kernel) + 2
    weight = constants.get(node.inputs[3]) if node.op == "QLinearConv" and len(node.inputs) > 3 else None
    return 0 if weight is None else weight.ndim


def _transpose(node: Node, read: str, made: str, axes: Sequence[int]) -> Node:
    return replace(
        node, op="Transpose", domain="", opset=_OPSET, inputs=[read], outputs=[made], attributes={"perm": list(axes)}
    )
