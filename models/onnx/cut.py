"""Where to end a model that cannot be compiled whole: values that can be computed, and what is left for the host."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .emit import Tensor
from .errors import shown
from .network import Network, Node
from .order import read_inside
from .survey import survey
from .table import Operand


@dataclass(frozen=True)
class Cut:
    """The values at which to end, in the order of the model, and how many of each op are left behind them.

    None are left where the model has empty outputs, and nothing else is refused.
    """

    ends: tuple[str, ...]
    left: Counter[str]

    def __str__(self) -> str:
        options = " ".join(f"--end-at {shlex.quote(shown(name, 1000))}" for name in self.ends)
        if not self.left:
            return f"without its empty outputs it compiles with {options}"
        ops = ", ".join(f"{count} {shown(op)}" for op, count in self.left.most_common())
        return (
            f"all before it compiles with {options}; the host then computes the rest, which --rest FILE writes: {ops}"
        )


def cut_of(network: Network) -> Cut | None:
    """The cut with the least behind it; None if nothing can be computed, or a value has no name in the file.

    Outputs that do not need what is refused stay outputs.
    """
    nodes = network.nodes
    values = survey(network).values  # which puts the nodes of an If or Loop in its place
    return _cut(network, network.nodes, nodes, values) or _cut(network, nodes, nodes, values)


def _cut(network: Network, nodes: Sequence[Node], of_file: Sequence[Node], values: Mapping[str, Operand]) -> Cut | None:
    made = {name for node in of_file for name in node.outputs}
    ends = [name for name in dict.fromkeys(network.outputs) if isinstance(values.get(name), Tensor)]
    left: Counter[str] = Counter()
    for node in nodes:
        if all(not name or name in values for name in node.outputs):
            continue
        left[node.op] += 1
        for name in (*node.inputs, *sorted(read_inside(node))):
            if isinstance(values.get(name), Tensor) and name not in ends:
                ends.append(name)
    inputs = {port.name for port in network.inputs}
    ends = [name for name in ends if name not in inputs]
    empty = [name for name in network.outputs if isinstance(array := values.get(name), np.ndarray) and not array.size]
    return Cut(tuple(ends), left) if (left or empty) and ends and made.issuperset(ends) else None
