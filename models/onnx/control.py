"""If and Loop whose conditions and counts are constants: the nodes of their graphs take their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from .lowering import why_not
from .network import Network, Node
from .old_opsets import modernised
from .read import MAX_NODES, array_of, node_of

if TYPE_CHECKING:
    import onnx

_MAX_UNROLLED = 1 << 13  # nodes: a graph that a file repeats without end takes some seconds


class ControlFlow:
    """Unfolds nodes of a network. It and `values` get the constants of their graphs."""

    def __init__(self, network: Network, values: dict[str, Any]) -> None:
        self._network, self._values = network, values
        self._names = {*network.constants, *network.outputs, *(port.name for port in network.inputs)}
        for node in network.nodes:
            self._names.update((*node.inputs, *node.outputs))
        self._count = len(network.nodes)
        self._most = min(MAX_NODES, self._count + _MAX_UNROLLED)
        # Of a Loop that is unrolled in part, by its id: itself, its next step, and by result what the others made.
        self._begun: dict[int, tuple[Node, int, list[list[str]]]] = {}

    def unfolded(self, node: Node) -> list[Node] | None:
        """The nodes instead of an If or of a Loop, the last of them another Loop if it goes on; None: it stays.

        Raises:
            CheckpointError: The nodes would be too many.
            UnsupportedNodeError: A graph that does not fit its node, or a condition that the network computes.
        """
        if node.domain or node.op not in ("If", "Loop"):
            return None
        made = self._chosen(node) if node.op == "If" else self._iteration(node)
        self._count += len(made)
        if self._count > self._most:
            raise CheckpointError(f"{node.label}: with its graphs there are more than {self._most} nodes")
        return made

    def _chosen(self, node: Node) -> list[Node]:
        condition = _number(node, node.inputs[0] if node.inputs else "", self._values) != 0
        graph = _graph(node, "then_branch" if condition else "else_branch")
        return self._nodes_of(node, graph, {}, node.outputs)

    def _iteration(self, node: Node) -> list[Node]:
        """The first iteration that is left and a Loop of the others, or what the last one leaves."""
        graph = _graph(node, "body")
        count, condition, *carried = [*node.inputs, *[""] * (2 - len(node.inputs))]
        if len(graph.input) != 2 + len(carried) or len(node.outputs) > len(graph.output) - 1:
            raise node.unsupported(f"a body of {len(graph.input)} inputs for {len(carried)} values that it carries")
        scans = len(graph.output) - 1 - len(carried)
        if scans < 0:
            raise node.unsupported(f"a body of {len(graph.output)} outputs for {len(carried)} values that it carries")
        _, step, collected = self._begun.get(id(node), (node, 0, [[] for _ in range(scans)]))
        goes_on = (not count or step < _number(node, count, self._values)) and (
            not condition or _number(node, condition, self._values)
        )
        if not goes_on:
            return self._ended(node, carried, collected)
        number = self._fresh(f"{node.first_output}/step")
        self._constant(number, np.asarray(step, np.int64))
        truth = condition or self._fresh(f"{node.first_output}/condition")
        if not condition:
            self._constant(truth, np.asarray(True))
        given = dict(zip((info.name for info in graph.input), (number, truth, *carried), strict=True))
        made = [self._fresh(f"{node.first_output}/{info.name}") for info in graph.output]
        nodes = self._nodes_of(node, graph, given, made)
        others = replace(node, inputs=[count, made[0], *made[1 : 1 + len(carried)]])
        collected = [[*before, name] for before, name in zip(collected, made[1 + len(carried) :], strict=True)]
        self._begun[id(others)] = (others, step + 1, collected)
        return [*nodes, others]

    def _ended(self, node: Node, carried: list[str], collected: list[list[str]]) -> list[Node]:
        nodes = []
        for name, source in zip(node.outputs, carried, strict=False):
            if name:
                nodes.append(replace(node, op="Identity", inputs=[source], outputs=[name], attributes={}, opset=13))
        axis = self._fresh(f"{node.first_output}/axis")
        self._constant(axis, np.zeros(1, np.int64))
        for name, parts in zip(node.outputs[len(carried) :], collected, strict=False):
            if not name:
                continue
            if not parts:
                raise node.unsupported("a Loop of no iterations collects an empty tensor, which is not supported")
            rows = [self._fresh(f"{part}/row") for part in parts]
            for part, row in zip(parts, rows, strict=True):
                nodes.append(replace(node, op="Unsqueeze", inputs=[part, axis], outputs=[row], attributes={}, opset=13))
            nodes.append(replace(node, op="Concat", inputs=rows, outputs=[name], attributes={"axis": 0}, opset=13))
        return nodes

    def _nodes_of(self, node: Node, graph: onnx.GraphProto, given: Mapping[str, str], outputs: list[str]) -> list[Node]:
        """The nodes of a graph with names of their own, then what gives its outputs theirs."""
        if len(graph.output) < len(outputs):
            raise node.unsupported(f"a graph of {len(graph.output)} outputs for {len(outputs)}")
        names = dict(given)
        for tensor in graph.initializer:
            names[tensor.name] = self._fresh(f"{node.first_output}/{tensor.name}")
            self._constant(names[tensor.name], array_of(tensor, None, f"{node.label}: an initialiser"))
        nodes = [node_of(proto, self._network.opset, self._network.foreign) for proto in graph.node]
        for inner in nodes:
            for name in filter(None, inner.outputs):
                names[name] = self._fresh(f"{node.first_output}/{name}")
        self._names.update(names)  # of the graph, for constants to keep away from
        for name, array in modernised(nodes, self._network.opset, self._names).items():
            self._constant(name, array)
        for inner in nodes:
            inner.attributes = {
                key: _renamed(value, names) if _has_graph(value) else value for key, value in inner.attributes.items()
            }
            inner.inputs = [names.get(name, name) for name in inner.inputs]
            inner.outputs = [names.get(name, name) for name in inner.outputs]
        for info, name in zip(graph.output, outputs, strict=False):
            if name:
                source = names.get(info.name, info.name)
                nodes.append(
                    replace(node, op="Identity", inputs=[source], outputs=[name], attributes={}, name="", opset=13)
                )
        return nodes

    def _constant(self, name: str, array: NDArray[Any]) -> None:
        self._names.add(name)
        self._network.constants[name] = self._values[name] = array

    def _fresh(self, base: str) -> str:
        name = base = base[-200:]
        number = 0
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return name


def _graph(node: Node, name: str) -> onnx.GraphProto:
    value = node.attributes.get(name)
    if not _has_graph(value):
        raise node.unsupported(f"attribute '{name}' is no graph")
    return value.g


def _has_graph(value: Any) -> bool:
    from onnx import AttributeProto

    return isinstance(value, AttributeProto) and value.type == AttributeProto.GRAPH


def _number(node: Node, name: str, values: Mapping[str, Any]) -> float:
    value = values.get(name)
    if not isinstance(value, np.ndarray):
        raise node.unsupported(why_not(node) or "")
    if value.size != 1 or value.dtype.kind not in "biuf":
        raise node.unsupported(
            f"a condition or number of iterations that is {value.size} of {value.dtype.name}, expected 1 number"
        )
    return float(value.reshape(-1)[0])


def _renamed(attribute: Any, names: Mapping[str, str]) -> Any:
    """A graph inside of a graph reads names of both."""
    from onnx import AttributeProto

    copy = AttributeProto()
    copy.CopyFrom(attribute)

    def rename(graph: Any, known: Mapping[str, str]) -> None:
        own = {info.name for info in (*graph.input, *graph.initializer)}
        own |= {name for proto in graph.node for name in proto.output}
        known = {name: new for name, new in known.items() if name not in own}
        for proto in graph.node:
            proto.input[:] = [known.get(name, name) for name in proto.input]
            for inner in proto.attribute:
                if inner.type == AttributeProto.GRAPH:
                    rename(inner.g, known)
        for info in graph.output:
            info.name = known.get(info.name, info.name)

    rename(copy.g, names)
    return copy
