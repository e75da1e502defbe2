"""Patterns of nodes that become one: before lowering, on the network itself.

- Conv, then BatchNormalization: the weights of the convolution.
- MatMul, then Add of a constant vector: the bias of a Linear.
- x * Sigmoid(x): Silu.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .network import Network, Node


class _Users:
    """Who makes and who reads each value."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.producer = {name: node for node in network.nodes for name in node.outputs if name}
        self.reads = Counter(name for node in network.nodes for name in node.inputs if name)
        self.reads.update(network.outputs)

    def made_by(self, name: str, op: str) -> Node | None:
        """The node of that op that makes `name` for one reader only."""
        node = self.producer.get(name)
        alone = node is not None and node.op == op and not node.domain and self.reads[name] == 1
        return node if alone else None


def fuse(network: Network) -> Network:
    """The network with its patterns replaced."""
    for pattern in _PATTERNS:
        users = _Users(network)
        gone: set[int] = set()
        nodes: list[Node] = []
        for node in network.nodes:
            found = pattern(node, users)
            if found is None:
                nodes.append(node)
                continue
            merged, absorbed = found
            gone.update(id(other) for other in absorbed)
            nodes.append(merged)
        network.nodes = [node for node in nodes if id(node) not in gone]
    return network


def _conv_batch_norm(node: Node, users: _Users) -> tuple[Node, list[Node]] | None:
    if (
        node.op != "BatchNormalization"
        or node.domain
        or node.attributes.get("training_mode", 0)
        or any(node.outputs[1:])
    ):
        return None
    conv = users.made_by(node.inputs[0], "Conv") if len(node.inputs) == 5 else None
    constants = users.network.constants
    if conv is None or any(name not in constants for name in (*conv.inputs[1:], *node.inputs[1:])):
        return None
    weight = np.asarray(constants[conv.inputs[1]], np.float32)
    scale, bias, mean, variance = (np.asarray(constants[name], np.float64) for name in node.inputs[1:])
    if any(part.shape != weight.shape[:1] for part in (scale, bias, mean, variance)):
        return None
    factor = scale / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    before = np.asarray(constants[conv.inputs[2]], np.float64) if len(conv.inputs) > 2 else np.zeros(1)
    names = [f"{node.outputs[0]}/{part}" for part in ("weight", "bias")]
    if any(name in constants or name in users.producer for name in names):
        return None
    constants[names[0]] = (weight * factor.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32)
    constants[names[1]] = ((before - mean) * factor + bias).astype(np.float32)
    return replace(conv, inputs=[conv.inputs[0], *names], outputs=node.outputs[:1]), [conv]


def _matmul_bias(node: Node, users: _Users) -> tuple[Node, list[Node]] | None:
    if node.op != "Add" or node.domain or len(node.inputs) != 2:
        return None
    constants = users.network.constants
    for product, bias in (node.inputs, node.inputs[::-1]):
        matmul = users.made_by(product, "MatMul")
        if (
            matmul is None
            or bias not in constants
            or matmul.inputs[1] not in constants
            or matmul.inputs[0] in constants
        ):
            continue
        weight = constants[matmul.inputs[1]]
        if weight.ndim == 2 and constants[bias].shape == weight.shape[1:]:
            merged = replace(
                matmul, op="MatMulBias", domain="tcim_lite", inputs=[*matmul.inputs, bias], outputs=node.outputs
            )
            return merged, [matmul]
    return None


def _silu(node: Node, users: _Users) -> tuple[Node, list[Node]] | None:
    if node.op != "Mul" or node.domain or len(node.inputs) != 2:
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        sigmoid = users.made_by(gate, "Sigmoid")
        if sigmoid is not None and sigmoid.inputs == [x] and x not in users.network.constants:
            return replace(node, op="Silu", domain="tcim_lite", inputs=[x]), [sigmoid]
    return None


_PATTERNS: tuple[Callable[[Node, _Users], tuple[Node, list[Node]] | None], ...] = (
    _conv_batch_norm,
    _matmul_bias,
    _silu,
)
