"""Who makes and reads each value, and what flows into and out of a folded block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..hmm import Graph
from .fold import Repeat

_FEW = 4  # ops that read an input for which lines are drawn
_STREAMS = ("embeddings", "hidden")  # roles of inputs that are data, not lengths, positions or masks
_NEVER = -1


@dataclass(slots=True)
class Wiring:
    """A graph's values by id, seen from its ops.

    Attributes:
        graph: It.
        maker: The op that makes a value, -1 for inputs, states and weights.
        first: The first op that reads a value, -1 if none does.
        last: The last one.
        outputs: Ids of the graph's outputs.
        tags: Ids of inputs that are written beside each op that reads them, because lines would hide the rest.
    """

    graph: Graph
    maker: list[int] = field(init=False)
    first: list[int] = field(init=False)
    last: list[int] = field(init=False)
    outputs: frozenset[int] = field(init=False)
    tags: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        graph = self.graph
        count = len(graph.values)
        self.maker, self.first, self.last = [_NEVER] * count, [_NEVER] * count, [_NEVER] * count
        readers = [0] * count
        for index, op in enumerate(graph.ops):
            for id_ in op.outputs:
                self.maker[id_] = index
            for id_ in dict.fromkeys(op.inputs):
                readers[id_] += 1
                self.last[id_] = index
                if self.first[id_] == _NEVER:
                    self.first[id_] = index
        self.outputs = frozenset(graph.outputs)
        self.tags = frozenset(
            id_ for id_ in graph.inputs if graph.values[id_].kind == "input" and self._is_tag(id_, readers[id_])
        )

    def _is_tag(self, id_: int, readers: int) -> bool:
        value = self.graph.values[id_]
        told = (
            value.role.name not in _STREAMS
            if value.role is not None
            else value.dtype == "int32" and len(value.shape) == 1
        )
        return readers > _FEW or (told and readers > 1)

    def flows(self, id_: int) -> bool:
        """Whether lines are drawn for a value: results and inputs, neither weights nor states nor tags."""
        kind = self.graph.values[id_].kind
        return kind == "intermediate" or (kind == "input" and id_ not in self.tags)

    def leaves(self, id_: int, stop: int) -> bool:
        """Whether a value is read at op `stop` or later, or is an output of the graph."""
        return self.last[id_] >= stop or id_ in self.outputs


@dataclass(frozen=True, slots=True)
class Ports:
    """What flows into and out of each occurrence of a block. Port k of one occurrence is port k of all others.

    Attributes:
        ins: Per port, the value that each occurrence reads.
        outs: Per port, the value that each occurrence makes.
        carried: Per port of `ins`, whether an occurrence reads what another one makes.
    """

    ins: tuple[tuple[int, ...], ...]
    outs: tuple[tuple[int, ...], ...]
    carried: tuple[bool, ...]


def ports_of(wiring: Wiring, block: Repeat) -> Ports:
    """Returns the ports of a block, in the order of its ops."""
    starts = range(block.start, block.stop, block.period)
    ins = list(zip(*(_read(wiring, start, block.period) for start in starts), strict=True))
    outs = list(zip(*(_made(wiring, start, block.period) for start in starts), strict=True))
    ins = [row for row in ins if any(wiring.flows(id_) for id_ in row)]
    outs = [row for row in outs if _leave(wiring, row, starts, block.period)]
    carried = tuple(any(block.start <= wiring.maker[id_] < block.stop for id_ in row) for row in ins)
    return Ports(tuple(ins), tuple(outs), carried)


def _leave(wiring: Wiring, row: Sequence[int], starts: range, period: int) -> bool:
    return any(wiring.leaves(id_, start + period) for id_, start in zip(row, starts, strict=True))


def _read(wiring: Wiring, start: int, period: int) -> list[int]:
    """The values that an occurrence reads and does not make: inputs and results, each once."""
    graph = wiring.graph
    found: dict[int, None] = {}
    for op in graph.ops[start : start + period]:
        for id_ in op.inputs:
            if graph.values[id_].kind in ("input", "intermediate") and wiring.maker[id_] < start:
                found[id_] = None
    return list(found)


def _made(wiring: Wiring, start: int, period: int) -> list[int]:
    return [id_ for op in wiring.graph.ops[start : start + period] for id_ in op.outputs]
