"""The order of nodes: each behind those that it reads, also from the graphs among its attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..common.errors import CheckpointError
from .errors import shown
from .network import Node

if TYPE_CHECKING:
    import onnx


def in_order(nodes: Iterable[Node], ready: set[str], outputs: Iterable[str]) -> list[Node]:
    """The nodes that outputs need, each behind those it reads."""
    producers: dict[str, Node] = {}
    for node in nodes:
        for name in filter(None, node.outputs):
            if name in producers or name in ready:
                raise CheckpointError(
                    f"{node.label}: '{shown(name)}' is already an input, an initialiser or made by another node"
                )
            producers[name] = node
    ordered: list[Node] = []
    state: dict[int, int] = {}  # of a node: 1 begun, 2 done
    for output in outputs:
        if output not in producers and output not in ready:
            raise CheckpointError(f"output '{shown(output)}' is made by no node")
        stack = [producers[output]] if output in producers else []
        while stack:
            node = stack[-1]
            if state.get(id(node)) == 2:
                stack.pop()
                continue
            state[id(node)] = 1
            waiting = []
            for name in filter(None, (*node.inputs, *read_inside(node))):
                if name in ready:
                    continue
                if name not in producers:
                    raise CheckpointError(
                        f"{node.label} reads '{shown(name)}', which is no input, no initialiser and made by no node"
                    )
                before = producers[name]
                if state.get(id(before)) == 1:
                    raise CheckpointError(
                        f"{node.label} reads '{shown(name)}', which is made from its own result: a cycle"
                    )
                if state.get(id(before)) != 2:
                    waiting.append(before)
            if waiting:
                stack += waiting[:1]
                continue
            state[id(node)] = 2
            ordered.append(node)
            stack.pop()
    return ordered


def read_inside(node: Node) -> set[str]:
    """What the graphs among a node's attributes read of the graph around them."""
    from onnx import AttributeProto

    return read_by(value for value in node.attributes.values() if isinstance(value, AttributeProto))


def read_by(attributes: Iterable[onnx.AttributeProto]) -> set[str]:
    """What the graphs among attributes read of the graph around them."""
    from onnx import AttributeProto

    names: set[str] = set()
    for attribute in attributes:
        if attribute.type == AttributeProto.GRAPH:
            graph = attribute.g
            own = {info.name for info in (*graph.input, *graph.initializer)}
            read = {info.name for info in graph.output}
            for proto in graph.node:
                own |= {*proto.output}
                read |= {*proto.input, *read_by(proto.attribute)}
            names |= read - own
    return names - {""}
