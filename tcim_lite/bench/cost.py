"""What one run of a graph costs at least: the bytes it reads and the operations of its Linear layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..hmm.layout import ITEM_BYTES
from ..hmm.weight_format import LAYOUTS

if TYPE_CHECKING:
    from ..hmm import Container, Graph, Op, Value

_ROW_LOOKUPS = ("Rope",)  # read one row of their weights for a token, which is nothing


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


@dataclass(frozen=True)
class _Attention:
    """A FlashAttention op: queries [B, T, heads, D], and the caches [1, heads, C, D] of its slots."""

    queries: Value
    caches: Sequence[Value]
    window: int | None = None  # rows that a token sees; None: all before it
    masks: Sequence[Value] = ()  # [1, 1, T, S] of its slots

    @property
    def cache_row_bytes(self) -> int:
        """One row of every cache."""
        return sum(math.prod(c.shape) // c.shape[2] * ITEM_BYTES[c.dtype] for c in self.caches)

    def read_bytes(self, depth: int) -> int:
        """The rows of every cache that tokens from `depth` on see."""
        tokens = self.queries.shape[1]
        before = depth if self.window is None else min(depth, self.window - 1)
        return self.cache_row_bytes * (before + tokens)


def slot_count(file: Container) -> int:
    """Slots of a graph that have lengths and caches of their own.

    Raises:
        UnsupportedError: The graph has no KV caches: it is no language model.
    """
    return int(_a_query(file).shape[0])


def weight_bytes(file: Container) -> int:
    """Bytes of weights that one run reads; of experts as `Cost.read_bytes` has it."""
    total = 0
    for graph in file.graphs:
        used: dict[int, int] = {}  # bytes, by weight
        for op, operands in _ops(graph):
            for value in operands if op.kind not in _ROW_LOOKUPS else ():
                if value.weight is not None:
                    nbytes = file.weights[value.weight].nbytes
                    used[value.weight] = _chosen_bytes(nbytes, operands) if op.kind == "MoELinear" else nbytes
        total += sum(used.values())
    return total


def cost_of(file: Container, depth: int) -> Cost:
    """The cost of a run with `depth` tokens in the caches and every row of the graph real.

    Rows that BatchGather leaves out cost nothing from there on: shapes say so.

    Raises:
        UnsupportedError: As `slot_count`.
    """
    queries = _a_query(file)
    batch, length = queries.shape[:2]
    linears = [product for graph in file.graphs for op, operands in _ops(graph) for product in _product(op, operands)]
    cache_bytes = sum(each.read_bytes(depth) for graph in file.graphs for each in _attentions(graph))
    return Cost(
        tokens=batch * length,
        read_bytes=weight_bytes(file) + cache_bytes + sum(map(_mask_bytes, file.graphs)),
        operations=sum(2 * rows * math.prod(weight.shape[-2:]) for rows, weight in linears),
        quantized=any(LAYOUTS[weight.format].scale_inputs for _, weight in linears),
    )


def _mask_bytes(graph: Graph) -> int:
    """Of all layers: they share two masks a slot."""
    masks = {mask.name: mask for each in _attentions(graph) for mask in each.masks}
    return sum(math.prod(mask.shape) * ITEM_BYTES[mask.dtype] for mask in masks.values())


def _ops(graph: Graph) -> Iterator[tuple[Op, list[Value]]]:
    """Every op with its operands."""
    return ((op, [graph.values[id_] for id_ in op.inputs]) for op in graph.ops)


def _product(op: Op, operands: Sequence[Value]) -> Iterator[tuple[int, Value]]:
    """Rows and the weight of a Linear; of experts a row for each that a token chooses."""
    if op.kind == "Linear":
        yield math.prod(operands[0].shape[:-1]), operands[1]
    if op.kind == "MoELinear":
        yield math.prod(operands[1].shape), operands[2]


def _chosen_bytes(nbytes: int, operands: Sequence[Value]) -> int:
    """Of the weight or bias of a MoELinear."""
    experts = operands[2].shape[0]
    return nbytes // experts * min(experts, math.prod(operands[1].shape))


def _attentions(graph: Graph) -> Iterator[_Attention]:
    for op, operands in _ops(graph):
        if op.kind == "FlashAttention":
            queries, *slots = operands
            # Of every slot: keys, values, valid length, current length, mask if any. What follows is of all slots.
            each = 5 if "mask" in op.attributes else 4
            starts = range(0, len(slots) // each * each, each)
            caches = [cache for at in starts for cache in slots[at : at + 2]]
            masks = [mask for at in starts for mask in slots[at + 4 : at + each]]
            window = op.attributes.get("window")
            yield _Attention(queries, caches, None if window is None else int(window), masks)


def _a_query(file: Container) -> Value:
    """The queries of some attention: all have the same slots and tokens."""
    if not file.graphs:
        raise UnsupportedError(f"{file.label}: a file of weights has no graph")
    for attention in _attentions(file.graphs[0]):
        return attention.queries
    raise UnsupportedError(f"{file.label}: the graph has no KV caches; bench measures language models")
