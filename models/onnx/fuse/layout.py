"""Ops with channels last between Transposes, as TensorFlow's converters write them: they take the order around them.

A region is a set of ops that know no order, such as a sum, and that read what one kind of Transpose makes. It is
computed on what the Transposes read; those go, and so do Transposes back behind it. Where somebody else reads a value
of the region, a Transpose makes it. This is done where fewer elements are moved then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..network import OWN, Network, Node, fresh_name
from ..survey import Survey

ONE_TO_ONE = frozenset(
    (
        "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot",
        "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp",
        "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
        "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or",
        "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
        "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
    )
)  # fmt: skip
_OWN_ONE_TO_ONE = ((OWN, "FakeQuantize"), (OWN, "Silu"))
_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
_WITH_AXIS = ("Concat", "Softmax")
_SMALL = 8  # an operand from outside has at most this part of a result's elements


def without_turns(network: Network, found: Survey) -> bool:
    """Rewrites regions of the network; whether there was one."""
    turns = (node for node in network.nodes if node.op == "Transpose" and len(node.inputs) == 1)
    shapes = {found.shape(node.inputs[0]) for node in turns}
    changed = False
    for rank in sorted({len(shape) for shape in shapes if shape}):
        if rank > 2:
            last = (0, *range(2, rank), 1)  # channels to the last axis
            for order in dict.fromkeys((last, _inverse(last))):
                changed |= _Regions(network, found, order).rewrite()
    return changed


class _Regions:
    """The regions that read Transposes of one order."""

    def __init__(self, network: Network, found: Survey, order: tuple[int, ...]) -> None:
        self._network, self._found, self._order = network, found, order
        self._back = _inverse(order)
        self._maker = {name: node for node in network.nodes for name in node.outputs if name}
        self._readers: dict[str, list[Node]] = {}
        for node in network.nodes:
            for name in dict.fromkeys(filter(None, node.inputs)):
                self._readers.setdefault(name, []).append(node)
        self._names = {*network.constants, *self._maker, *(port.name for port in network.inputs)}
        self._turned: dict[str, str] = {}  # values of regions, and what stands for them in the order around

    def rewrite(self) -> bool:
        """Whether anything was rewritten."""
        inside = {id(node): node for node in self._network.nodes if self._fits(node)}
        while gone := [key for key, node in inside.items() if not self._reads_well(node, inside)]:
            for key in gone:
                del inside[key]
        kept = [region for region in self._parts(inside) if self._gain(region) > 0]
        region = {id(node) for nodes in kept for node in nodes}
        if region:
            self._network.nodes = [made for node in self._network.nodes for made in self._rewritten(node, region)]
        return bool(region)

    def _fits(self, node: Node) -> bool:
        """Whether its op can be written for another order of axes."""
        if (node.domain and (node.domain, node.op) not in _OWN_ONE_TO_ONE) or not any(node.outputs):
            return False
        rank = len(self._order)
        tensors = [name for name in node.inputs if name and name not in self._network.constants]
        shapes = [self._found.shape(name) for name in (*tensors, *filter(None, node.outputs))]
        if any(shape is None for shape in shapes) or not tensors:
            return False
        if any(len(shape) != rank for shape in shapes[: len(tensors)] if shape is not None):
            return False
        if node.op in ONE_TO_ONE or node.domain:
            return all(shape is not None and len(shape) == rank for shape in shapes)
        if tensors != node.inputs[: len(tensors)]:
            return False
        if node.op in _REDUCTIONS:
            axes = self._axes(node)
            kept = [self._order[axis] for axis in range(rank) if axes is not None and axis not in axes]
            return axes is not None and (bool(node.attributes.get("keepdims", 1)) or kept == sorted(kept))
        if node.op in _WITH_AXIS:
            return node.opset >= 13 or node.op == "Concat"
        if node.op == "Pad":
            return len(node.inputs) < 4 and all(name in self._network.constants for name in node.inputs[1:2])
        return False

    def _axes(self, node: Node) -> list[int] | None:
        """The axes of a reduction; None: they are computed, or all."""
        rank = len(self._order)
        given: Any = node.attributes.get("axes")
        if len(node.inputs) > 1 and node.inputs[1]:
            array = self._network.constants.get(node.inputs[1])
            given = None if array is None else array.reshape(-1).tolist()
        return [int(axis) % rank for axis in given] if given else None

    def _reads_well(self, node: Node, inside: dict[int, Node]) -> bool:
        """Whether all that it reads is of its region, of a Transpose, or small; something must not be small."""
        most = max(self._size(name) for name in node.outputs if name)
        ways = [self._way(name, inside) for name in node.inputs if name and name not in self._network.constants]
        others = [
            name for name in node.inputs if name and name not in self._network.constants and not self._way(name, inside)
        ]
        return any(ways) and all(self._size(name) * _SMALL <= most for name in others)

    def _way(self, name: str, inside: dict[int, Node]) -> bool:
        maker = self._maker.get(name)
        return maker is not None and (self._is_turn(maker, self._order) or self._makes_turned(maker, inside))

    def _makes_turned(self, node: Node, inside: Iterable[int]) -> bool:
        """Whether a node of the region has results in the region's order."""
        return id(node) in inside and (node.op not in _REDUCTIONS or bool(node.attributes.get("keepdims", 1)))

    def _is_turn(self, node: Node, order: Sequence[int]) -> bool:
        perm = node.attributes.get("perm") if node.op == "Transpose" and not node.domain else None
        return len(node.inputs) == 1 and isinstance(perm, list) and tuple(perm) == tuple(order)

    def _begins(self, node: Node, region: set[int]) -> bool:
        """Whether a region may read what a Transpose reads. Of three axes the order is also that back, of a region."""
        maker = self._maker.get(node.inputs[0]) if self._is_turn(node, self._order) else None
        return self._is_turn(node, self._order) and (maker is None or not self._makes_turned(maker, region))

    def _parts(self, inside: dict[int, Node]) -> list[list[Node]]:
        """The nodes in groups that share a value."""
        group = {key: key for key in inside}

        def root(key: int) -> int:
            while group[key] != key:
                group[key] = group[group[key]]
                key = group[key]
            return key

        for key, node in inside.items():
            for name in filter(None, node.inputs):
                maker = self._maker.get(name)
                near = [reader for reader in self._readers[name] if id(reader) in inside]
                if maker is not None and id(maker) in inside:
                    near.append(maker)
                elif maker is None or not self._is_turn(maker, self._order):
                    continue
                for other in near:
                    group[root(id(other))] = root(key)
        parts: dict[int, list[Node]] = {}
        for key, node in inside.items():
            parts.setdefault(root(key), []).append(node)
        return list(parts.values())

    def _gain(self, region: list[Node]) -> int:
        """By how many elements fewer Transposes move."""
        own = {id(node) for node in region}
        gain = 0
        for name in dict.fromkeys(name for node in region for name in filter(None, node.inputs)):
            maker = self._maker.get(name)
            if name in self._network.constants or (maker is not None and id(maker) in own):
                continue
            if maker is not None and self._begins(maker, own):
                gain += self._size(name) if not self._read_outside(name, own) else 0
            else:
                gain -= self._size(name)
        for node in region:
            gain += self._size(node.inputs[0]) * self._own_turns(node)
            for name in filter(None, node.outputs if self._makes_turned(node, own) else ()):
                outside = [reader for reader in self._readers.get(name, ()) if id(reader) not in own]
                back = [reader for reader in outside if self._is_turn(reader, self._back)]
                gain += self._size(name) * len(back)
                gain -= self._size(name) * (len(back) < len(outside) or name in self._network.outputs)
        return gain

    def _own_turns(self, node: Node) -> int:
        """How many Transposes fewer a node is lowered to in the other order: it needs its axes to be the last ones."""
        rank = len(self._order)
        if node.op == "Softmax":
            axes, turns = [int(node.attributes.get("axis", -1)) % rank], 2
        elif node.op in _REDUCTIONS:
            axes, turns = sorted(self._axes(node) or ()), 1
        else:
            return 0
        last = list(range(rank - len(axes), rank))
        return turns * ((axes != last) - (sorted(self._order[axis] for axis in axes) != last))

    def _read_outside(self, name: str, own: set[int]) -> bool:
        return name in self._network.outputs or any(id(reader) not in own for reader in self._readers[name])

    def _rewritten(self, node: Node, region: set[int]) -> list[Node]:
        if self._is_turn(node, self._back) and node.inputs[0] in self._turned:
            return [replace(node, op="Identity", inputs=[self._turned[node.inputs[0]]], attributes={})]
        if id(node) not in region:
            return [node]
        before: list[Node] = []
        inputs = [self._operand(name, node, region, before) for name in node.inputs]
        outputs, attributes = list(node.outputs), dict(node.attributes)
        after: list[Node] = []
        if self._makes_turned(node, region):
            outputs = [self._fresh(name) if name else "" for name in node.outputs]
            for name, turned in zip(node.outputs, outputs, strict=True):
                if name:
                    self._turned[name] = turned
                    if self._needs_turn(name, region):
                        after.append(self._transpose(node, turned, name, self._order))
        rank = len(self._order)
        if node.op in _REDUCTIONS:
            axes = sorted(self._order[axis] for axis in self._axes(node) or ())
            if "axes" in attributes:
                attributes["axes"] = axes
            else:
                inputs[1] = self._constant(node.inputs[1], np.asarray(axes, np.int64))
        elif node.op in _WITH_AXIS:
            attributes["axis"] = self._order[int(attributes.get("axis", -1)) % rank]
        elif node.op == "Pad":
            pads = self._network.constants[node.inputs[1]].reshape(2, rank)
            inputs[1] = self._constant(node.inputs[1], pads[:, list(self._back)].reshape(-1))
        return [*before, replace(node, inputs=inputs, outputs=outputs, attributes=attributes), *after]

    def _operand(self, name: str, node: Node, region: set[int], before: list[Node]) -> str:
        """What a node of a region reads instead of a value."""
        array = self._network.constants.get(name)
        if array is not None:
            if node.op not in ONE_TO_ONE and node.op != "Concat":
                return name  # axes, pads and their number
            if array.size == 1:
                return name
            extents = (1,) * (len(self._order) - array.ndim) + array.shape
            return self._constant(name, array.reshape(extents).transpose(self._back))
        if not name or name in self._turned:
            return self._turned.get(name, name)
        maker = self._maker.get(name)
        if maker is not None and self._begins(maker, region):
            return maker.inputs[0]
        turned = self._fresh(name)
        before.append(self._transpose(node, name, turned, self._back))
        return turned

    def _needs_turn(self, name: str, region: set[int]) -> bool:
        """Whether somebody reads a value in the region's order."""
        return name in self._network.outputs or any(
            id(reader) not in region and not self._is_turn(reader, self._back) for reader in self._readers.get(name, ())
        )

    def _constant(self, name: str, array: Any) -> str:
        made = self._fresh(name)
        self._network.constants[made] = array
        return made

    def _fresh(self, name: str) -> str:
        return fresh_name(f"{name[-200:]}/turned", self._names)

    def _transpose(self, node: Node, read: str, made: str, order: Sequence[int]) -> Node:
        return Node("Transpose", "", [read], [made], {"perm": list(order)}, node.name, self._network.opset)

    def _size(self, name: str) -> int:
        return math.prod(self._found.shape(name) or ())


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.argsort(order))
