"""What is drawn on one level: cards with ops, folded blocks, inputs, outputs, and the lines between them.

Ops that follow each other without a branch share a card, a row each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .fold import Item, Repeat
from .wiring import Ports, Wiring, ports_of


@dataclass(slots=True)
class Card:
    """Ops in a row, by index: each but the first reads one result, that of the op before it."""

    ops: list[int]


@dataclass(frozen=True, slots=True)
class Block:
    """A folded block, with what is inside the first of its occurrences."""

    repeat: Repeat
    ports: Ports
    level: Level


@dataclass(frozen=True, slots=True)
class End:
    """Where lines begin or end: an input or output of the graph, or a port of the block around the level.

    Attributes:
        kind: "input", "output", or of a port "in" and "out".
        value: Its id, in a block that of the first occurrence.
        port: Its number among those of the block.
    """

    kind: str
    value: int
    port: int = 0


Node = Card | Block | End


@dataclass(frozen=True, slots=True)
class Line:
    """A value that one node makes and another one reads; ports count for blocks only."""

    source: int
    target: int
    value: int
    out_port: int = 0
    in_port: int = 0


@dataclass(slots=True)
class Level:
    """Nodes in an order in which each is behind those that it reads from."""

    nodes: list[Node] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def build(wiring: Wiring, items: Sequence[Item]) -> Level:
    """Returns the level of a whole graph, which `items` are."""
    builder = _Builder(wiring)
    for id_ in wiring.graph.inputs:
        if wiring.graph.values[id_].kind == "input" and wiring.flows(id_):
            builder.source(End("input", id_), id_)
    builder.add(items)
    for id_ in wiring.graph.outputs:
        builder.sink(End("output", id_), id_)
    return builder.level


def _inside(wiring: Wiring, repeat: Repeat, ports: Ports) -> Level:
    builder = _Builder(wiring)
    for port, row in enumerate(ports.ins):
        builder.source(End("in", row[0], port), row[0])
    leaving = frozenset(row[0] for row in ports.outs)
    builder.add(repeat.body, leaving)
    for port, row in enumerate(ports.outs):
        builder.sink(End("out", row[0], port), row[0])
    return builder.level


@dataclass(slots=True)
class _Builder:
    wiring: Wiring
    level: Level = field(default_factory=Level)
    made: dict[int, tuple[int, int]] = field(default_factory=dict)  # value: its node and the port there

    def source(self, end: End, id_: int) -> None:
        self.made[id_] = (len(self.level.nodes), 0)
        self.level.nodes.append(end)

    def sink(self, end: End, id_: int) -> None:
        self.level.nodes.append(end)
        self._line(id_, 0)

    def add(self, items: Sequence[Item], leaving: frozenset[int] = frozenset()) -> None:
        """Appends items; `leaving` are values that are read outside the level."""
        for item in items:
            if isinstance(item, Repeat):
                self._add_block(item)
            else:
                self._add_op(item, leaving)

    def _line(self, id_: int, in_port: int) -> None:
        """A line to the newest node, if the value is made on this level."""
        target = len(self.level.nodes) - 1
        if id_ in self.made and self.made[id_][0] != target:
            node, port = self.made[id_]
            self.level.lines.append(Line(node, target, id_, port, in_port))

    def _add_block(self, repeat: Repeat) -> None:
        ports = ports_of(self.wiring, repeat)
        self.level.nodes.append(Block(repeat, ports, _inside(self.wiring, repeat, ports)))
        for port, row in enumerate(ports.ins):
            for id_ in dict.fromkeys(row):
                self._line(id_, port)
        here = len(self.level.nodes) - 1
        for port, row in enumerate(ports.outs):
            self.made.update((id_, (here, port)) for id_ in row)

    def _add_op(self, index: int, leaving: frozenset[int]) -> None:
        op = self.wiring.graph.ops[index]
        reads = [id_ for id_ in dict.fromkeys(op.inputs) if id_ in self.made]
        card = self._card_to_extend(reads, index, leaving)
        if card is None:
            self.level.nodes.append(Card([index]))
            for id_ in reads:
                self._line(id_, 0)
            here = len(self.level.nodes) - 1
        else:
            here = card
            node = self.level.nodes[card]
            assert isinstance(node, Card)
            node.ops.append(index)
        self.made.update((id_, (here, 0)) for id_ in op.outputs)

    def _card_to_extend(self, reads: Sequence[int], index: int, leaving: frozenset[int]) -> int | None:
        if len(reads) != 1:
            return None
        number = self.made[reads[0]][0]
        node = self.level.nodes[number]
        if not isinstance(node, Card):
            return None
        wiring = self.wiring
        for id_ in wiring.graph.ops[node.ops[-1]].outputs:
            if id_ in leaving or id_ in wiring.outputs or wiring.first[id_] != index or wiring.last[id_] != index:
                return None
        return number
