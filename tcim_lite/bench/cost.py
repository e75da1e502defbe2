"""What one run of a graph costs at least: the bytes it reads and the operations of its Linear layers.

The core counts (csrc/graph/cost.h); this adds up the devices of a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tcim_lite import _core

from ..errors import UnsupportedError
from ..hmm import encode_graph

if TYPE_CHECKING:
    from ..hmm import Container


@dataclass(frozen=True)
class Cost:
    """Of one run, on all devices together.

    Attributes:
        tokens: Of all slots together.
        read_bytes: Weights, scales and masks once, and the cache rows that are live. Of experts as many as the rows
            can choose, each another one while there are any.
        operations: Of the Linear layers and of chosen experts; a multiply-add counts as two. Attention is not counted.
        quantized: The operations are int8; otherwise fp32.
    """

    tokens: int
    read_bytes: int
    operations: int
    quantized: bool


def graph_costs(file: Container) -> list[_core.GraphCost]:
    """Of each device in rank order, every row of the graphs real.

    Raises:
        UnsupportedError: The file has weights only.
    """
    if not file.graphs:
        raise UnsupportedError(f"{file.label}: a file of weights has no graph")
    return [_core.graph_cost(encode_graph(graph)) for graph in file.graphs]


def rows_of(file: Container, cost: _core.GraphCost) -> tuple[int, int]:
    """Slots of a language model, and tokens of each in a run; 0 where the graph is none.

    Attention says it, and of a model that has states alone the first input, [slots, tokens, _].
    """
    if cost.slots:
        return cost.slots, cost.tokens
    values, inputs = file.graphs[0].values, file.graphs[0].inputs
    if not any(role.name == "conv_state" for i in inputs if (role := values[i].role) is not None):
        return 0, 0
    slots, tokens = values[inputs[0]].shape[:2]
    return int(slots), int(tokens)


def slot_count(file: Container) -> int:
    """Slots of a graph that have lengths and caches of their own.

    Raises:
        UnsupportedError: The graph has neither KV caches nor states: it is no language model.
    """
    return rows_of(file, _language_model_costs(file)[0])[0]


def weight_bytes(file: Container) -> int:
    """Bytes of weights that one run reads; of experts as `Cost.read_bytes` has it."""
    return sum(cost.weight_bytes for cost in graph_costs(file))


def cost_of(file: Container, depth: int) -> Cost:
    """The cost of a run with `depth` tokens in the caches and every row of the graph real.

    Rows that BatchGather leaves out cost nothing from there on: shapes say so.

    Raises:
        UnsupportedError: As `slot_count`.
    """
    costs = _language_model_costs(file)
    return Cost(
        tokens=math.prod(rows_of(file, costs[0])),
        read_bytes=sum(cost.read_bytes(depth) for cost in costs),
        operations=sum(cost.linear_operations for cost in costs),
        quantized=any(cost.quantized for cost in costs),
    )


def _language_model_costs(file: Container) -> list[_core.GraphCost]:
    costs = graph_costs(file)
    if not rows_of(file, costs[0])[0]:
        raise UnsupportedError(
            f"{file.label}: the graph has no KV caches of a language model; give one graph by its "
            "path, such as PACKAGE/whisper_encode.hmm"
        )
    return costs
