"""Gives every node of a level its rows, size and place."""

from __future__ import annotations

from dataclasses import dataclass

from . import text
from .cards import Block, Card, End, Level, Line
from .geometry import Box, Placed, Wire
from .layered import place
from .rows import SMALL, TITLE, Facts, Row, name_of, row_of, typed

HEAD, FOOT, SIDE, INSET = 34.0, 12.0, 34.0, 22.0  # of a folded block: its strips, its sides, the space below a strip
_PILL = 26.0
_PORT = 8.0


@dataclass(frozen=True, slots=True)
class Sized:
    """A level with the place of each of its nodes.

    Attributes:
        level: It.
        rows: Per node, the rows of a card; none for other nodes.
        inner: Per node, what is inside a block; None for other nodes.
        boxes: Sizes.
        placed: Places and lines.
        ports: By kind and number, where the ports of a block are.
    """

    level: Level
    rows: tuple[tuple[Row, ...], ...]
    inner: tuple[Sized | None, ...]
    boxes: tuple[Box, ...]
    placed: Placed
    ports: dict[tuple[str, int], float]


def measure(facts: Facts, level: Level) -> Sized:
    """Lays out a level and, before it, the blocks in it."""
    rows: list[tuple[Row, ...]] = []
    inner: list[Sized | None] = []
    boxes: list[Box] = []
    for node in level.nodes:
        own: tuple[Row, ...] = ()
        inside = None
        if isinstance(node, Card):
            own = tuple(row_of(facts, index) for index in node.ops)
            box = Box(max(row.width for row in own), sum(row.height for row in own))
        elif isinstance(node, Block):
            inside = measure(facts, node.level)
            least = text.sans_width(block_title(node), TITLE) + 2 * SIDE + 180
            width = max(inside.placed.width + 2 * SIDE, least)
            box = Box(width, inside.placed.height + HEAD + FOOT + 2 * INSET)
        elif node.kind in ("input", "output"):
            box = Box(text.mono_width(pill(facts, node), SMALL) + 28, _PILL)
        else:
            box = Box(_PORT, _PORT, -1 if node.kind == "in" else 1)
        rows.append(own)
        inner.append(inside)
        boxes.append(box)
    wires = [_wire(level, line, boxes, inner) for line in level.lines]
    placed = place(boxes, wires)
    ports = {
        (node.kind, node.port): placed.x[index] + _PORT / 2
        for index, node in enumerate(level.nodes)
        if isinstance(node, End)
    }
    return Sized(level, tuple(rows), tuple(inner), tuple(boxes), placed, ports)


def block_title(block: Block) -> str:
    """× 28"""
    return f"× {block.repeat.count}"


def pill(facts: Facts, end: End) -> str:
    """What is printed on an input or output."""
    value = facts.graph.values[end.value]
    return f"{name_of(value)}  {typed(value, facts.usual)}"


def inner_left(box: Box, inside: Sized) -> float:
    """From the left of a block to what is inside."""
    return (box.width - inside.placed.width) / 2


def port_x(box: Box, inside: Sized, kind: str, port: int) -> float:
    """Where a port is, from the left of the box of its block."""
    return inner_left(box, inside) + inside.ports[kind, port]


def _wire(level: Level, line: Line, boxes: list[Box], inner: list[Sized | None]) -> Wire:
    source_x, target_x = boxes[line.source].width / 2, None
    source, target = level.nodes[line.source], level.nodes[line.target]
    inside = inner[line.source]
    if isinstance(source, Block) and inside is not None:
        source_x = port_x(boxes[line.source], inside, "out", line.out_port)
    inside = inner[line.target]
    if isinstance(target, Block) and inside is not None:
        target_x = port_x(boxes[line.target], inside, "in", line.in_port)
    return Wire(line.source, line.target, (line.source, line.value), source_x, target_x)
