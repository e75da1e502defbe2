"""If, Loop and Scan: the nodes of their graphs take their place.

Where the network computes a condition, both graphs of an If are computed, and all iterations of a Loop whose number has
a constant limit; what counts is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from .emit import Tensor
from .errors import shown
from .lowering import why_not
from .network import OWN, Network, Node
from .old_opsets import modernised
from .read import MAX_NODES, node_of
from .tensors import array_of

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
            for value in filter(_has_graph, node.attributes.values()):
                self._names.update(_names_inside(value.g))  # a new name that a graph has would be that of its value
        self._count = len(network.nodes)
        self._most = min(MAX_NODES, self._count + _MAX_UNROLLED)
        # Of a Loop that is unrolled in part, by its id: itself, its next step, and by result what the others made.
        self._begun: dict[int, tuple[Node, int, list[list[str]]]] = {}

    def unfolded(self, node: Node) -> list[Node] | None:
        """The nodes instead of an If, a Scan or a Loop, the last of them another Loop if it goes on; None: it stays.

        Raises:
            CheckpointError: The nodes would be too many.
            UnsupportedNodeError: A graph that does not fit its node, or a condition that the network computes.
        """
        ways = {"If": self._chosen, "Loop": self._iteration, "Scan": self._scanned}
        if node.domain or node.op not in ways:
            return None
        made = ways[node.op](node)
        self._count += len(made)
        if self._count > self._most:
            raise CheckpointError(f"{node.label}: with its graphs there are more than {self._most} nodes")
        return made

    def _chosen(self, node: Node) -> list[Node]:
        name = node.inputs[0] if node.inputs else ""
        if isinstance(self._values.get(name), Tensor):
            nodes: list[Node] = []
            results: dict[str, list[str]] = {}
            for branch in ("then_branch", "else_branch"):
                results[branch] = [self._fresh(f"{output}/{branch}") if output else "" for output in node.outputs]
                nodes += self._nodes_of(node, _graph(node, branch), {}, results[branch])
            return nodes + _choices(node, name, results["then_branch"], results["else_branch"], node.outputs)
        condition = _number(node, name, self._values) != 0
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
        computed = isinstance(self._values.get(condition), Tensor)
        if computed and (scans or not count or _number(node, count, self._values) > _MAX_UNROLLED):
            raise node.unsupported(why_not(node) or "")
        goes_on = (not count or step < _number(node, count, self._values)) and (
            not condition or computed or _number(node, condition, self._values)
        )
        if not goes_on:
            return self._left(node, carried, collected, [0] * scans)
        number = self._fresh(f"{node.first_output}/step")
        self._constant(number, np.asarray(step, np.int64))
        truth = condition or self._fresh(f"{node.first_output}/condition")
        if not condition:
            self._constant(truth, np.asarray(True))
        given = dict(zip((info.name for info in graph.input), (number, truth, *carried), strict=True))
        made = [self._fresh(f"{node.first_output}/{info.name}") for info in graph.output]
        nodes = self._nodes_of(node, graph, given, made)
        if computed:  # once it is false, what is carried stays as it is
            kept = [self._fresh(f"{name}/kept") for name in made[: 1 + len(carried)]]
            nodes += [_plain(node, "And", [condition, made[0]], kept[0])]
            nodes += _choices(node, condition, made[1 : 1 + len(carried)], carried, kept[1:])
            made[: 1 + len(carried)] = kept
        others = replace(node, inputs=[count, made[0], *made[1 : 1 + len(carried)]])
        collected = [[*before, name] for before, name in zip(collected, made[1 + len(carried) :], strict=True)]
        self._begun[id(others)] = (others, step + 1, collected)
        return [*nodes, others]

    def _left(self, node: Node, carried: list[str], collected: list[list[str]], axes: list[int]) -> list[Node]:
        """What the last step leaves: the values that it carries, and those of all steps along an axis."""
        nodes = [
            _plain(node, "Identity", [source], name)
            for name, source in zip(node.outputs, carried, strict=False)
            if name
        ]
        for name, parts, axis in zip(node.outputs[len(carried) :], collected, axes, strict=False):
            if not name:
                continue
            if not parts:
                raise node.unsupported("a Loop of no iterations collects an empty tensor, which is not supported")
            place = self._fresh(f"{node.first_output}/axis")
            self._constant(place, np.asarray([axis], np.int64))
            rows = [self._fresh(f"{part}/row") for part in parts]
            nodes += [_plain(node, "Unsqueeze", [part, place], row) for part, row in zip(parts, rows, strict=True)]
            nodes.append(_plain(node, "Concat", rows, name, axis=axis))
        return nodes

    def _scanned(self, node: Node) -> list[Node]:
        """The nodes of all steps: each reads what the one before leaves, and a row of every input that is scanned."""
        graph, count = _graph(node, "body"), node.attributes.get("num_scan_inputs")
        if node.opset < 9:
            raise node.unsupported("batches of opset 8; expected opset 9 or later")
        if not isinstance(count, int) or not 1 <= count <= len(node.inputs) == len(graph.input):
            raise node.unsupported(f"{len(node.inputs)} operands for a body of {len(graph.input)} inputs")
        states, scanned = node.inputs[:-count], node.inputs[-count:]
        scans = len(graph.output) - len(states)
        if scans < 0 or len(node.outputs) > len(graph.output):
            raise node.unsupported(f"a body of {len(graph.output)} outputs for {len(states)} values that it carries")
        axes, lengths = _numbers(node, "scan_input_axes", count), set()
        for name, axis in zip(scanned, axes, strict=True):
            shape = getattr(self._values.get(name), "shape", ())
            if not -len(shape) <= axis < len(shape):
                raise node.unsupported(f"no axis {axis} of '{shown(name)}' to scan")
            lengths.add(shape[axis])
        steps = max(lengths)
        if len(lengths) > 1 or steps < 1:
            raise node.unsupported(f"scanned axes of {sorted(lengths)} elements, expected one number above 0")
        if self._count + steps * (len(graph.node) + count) > self._most:
            raise CheckpointError(f"{node.label}: with its graphs there are more than {self._most} nodes")
        backwards = _numbers(node, "scan_input_directions", count)
        nodes: list[Node] = []
        collected: list[list[str]] = [[] for _ in range(scans)]
        for step in range(steps):
            rows = []
            for name, axis, back in zip(scanned, axes, backwards, strict=True):
                at, row = self._fresh(f"{node.first_output}/step"), self._fresh(f"{node.first_output}/row")
                self._constant(at, np.asarray(steps - 1 - step if back else step, np.int64))
                nodes.append(_plain(node, "Gather", [name, at], row, axis=axis))
                rows.append(row)
            given = dict(zip((info.name for info in graph.input), (*states, *rows), strict=True))
            made = [self._fresh(f"{node.first_output}/{info.name}") for info in graph.output]
            nodes += self._nodes_of(node, graph, given, made)
            states = made[: len(states)]
            for parts, name in zip(collected, made[len(states) :], strict=True):
                parts.append(name)
        turned = _numbers(node, "scan_output_directions", scans)
        collected = [parts[::-1] if back else parts for parts, back in zip(collected, turned, strict=True)]
        return nodes + self._left(node, states, collected, _numbers(node, "scan_output_axes", scans))

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
                nodes.append(replace(_plain(node, "Identity", [source], name), name=""))
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


def _choices(node: Node, condition: str, first: list[str], second: list[str], results: list[str]) -> list[Node]:
    return [
        replace(_plain(node, "Chosen", [condition, one, other], result), domain=OWN)
        for one, other, result in zip(first, second, results, strict=True)
        if result
    ]


def _plain(node: Node, op: str, inputs: list[str], output: str, **attributes: int) -> Node:
    """A node of an op that moves elements, with the name of the one that it is part of."""
    return replace(node, op=op, inputs=inputs, outputs=[output], attributes=attributes, opset=13)


def _numbers(node: Node, name: str, count: int) -> list[int]:
    """A list attribute of `count` whole numbers, 0 where it is absent."""
    values = node.attributes.get(name, [0] * count)
    if not isinstance(values, list) or len(values) != count or not all(isinstance(value, int) for value in values):
        raise node.unsupported(f"attribute '{name}' does not have {count} whole numbers")
    return values


def _graph(node: Node, name: str) -> onnx.GraphProto:
    value = node.attributes.get(name)
    if value is None or not _has_graph(value):
        raise node.unsupported(f"attribute '{name}' is no graph")
    return value.g


def _has_graph(value: Any) -> bool:
    from onnx import AttributeProto

    return isinstance(value, AttributeProto) and value.type == AttributeProto.GRAPH


def _names_inside(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph gives, and those in it."""
    for given in (graph.input, graph.initializer):
        yield from (info.name for info in given)
    for node in graph.node:
        yield from node.output
        for attribute in filter(_has_graph, node.attribute):
            yield from _names_inside(attribute.g)


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
