"""x[mask] = number, which exporters write as an update of the places where the mask is true: it becomes a Where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .network import Node, fresh_name

_BOOL = 9  # TensorProto.BOOL


def without_places(nodes: Sequence[Node], constants: Mapping[str, NDArray[Any]]) -> list[Node]:
    """The nodes with a Where instead of each ScatterND of one number at the places that NonZero finds."""
    makers = {name: node for node in nodes for name in node.outputs if name and not node.domain}
    names: set[str] = set()
    result: list[Node] = []
    for node in nodes:
        mask, number = _mask(node, makers), _number(node, makers, constants)
        if mask is None or number is None:
            result.append(node)
            continue
        names = names or {*constants, *makers, *(name for each in nodes for name in each.inputs)}
        result += _where(node, mask, number, names)
    return result


def _mask(node: Node, makers: Mapping[str, Node]) -> str | None:
    """What NonZero reads, if its result is turned round and says where `node` puts its updates."""
    if node.op != "ScatterND" or node.domain or len(node.inputs) != 3:
        return None
    if node.attributes.get("reduction", "none") != "none":
        return None
    turned = makers.get(node.inputs[1])
    places = makers.get(turned.inputs[0]) if turned is not None and turned.op == "Transpose" and turned.inputs else None
    if places is None or places.op != "NonZero" or len(places.inputs) != 1:
        return None
    return places.inputs[0]


def _number(node: Node, makers: Mapping[str, Node], constants: Mapping[str, NDArray[Any]]) -> str | None:
    """The constant of one element that all updates are."""
    name = node.inputs[2] if len(node.inputs) == 3 else ""
    for _ in range(len(makers)):
        if name in constants:
            return name if constants[name].size == 1 and constants[name].ndim < 2 else None
        maker = makers.get(name)
        if maker is None or maker.op not in ("Expand", "Reshape", "Identity") or not maker.inputs:
            return None
        name = maker.inputs[0]
    return None


def _where(node: Node, mask: str, number: str, names: set[str]) -> list[Node]:
    """A mask of fewer axes than x is one of its first axes, so it gets axes of 1 behind them."""
    x, made = node.inputs[0], list[Node]()

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        name = fresh_name(f"{node.outputs[0][-200:]}/{op}_{len(made)}", names)
        made.append(replace(node, op=op, inputs=list(inputs), outputs=[name], attributes=attributes))
        return name

    own, whole = add("Shape", mask), add("Shape", x)
    more = add("Sub", add("Shape", whole), add("Shape", own))
    shape = add("Concat", own, add("ConstantOfShape", more, value=np.ones(1, np.int64)), axis=0)
    condition = add("Cast", add("Reshape", mask, shape), to=_BOOL)
    return [*made, replace(node, op="Where", inputs=[condition, number, x], attributes={})]
