"""The rows of a card: an op a row, and below it the weights, states and inputs that it reads."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..hmm import Graph, Value, WeightEntry
from ..hmm.layout import ITEM_BYTES
from . import text
from .ops import class_of, summary
from .wiring import Wiring

TITLE, SMALL = 13.0, 11.0  # font sizes in pixels
ROW, CHIP, CHIP_GAP, PAD = 24.0, 20.0, 5.0, 10.0
_WIDEST = 352.0  # of the chips of a line
_NAME = 28  # characters of a name in a chip


@dataclass(frozen=True, slots=True)
class Chip:
    """A weight, a state or an input beside the op that reads it.

    Attributes:
        kind: "weight", "state" or "input".
        value: Its id.
        label: What is printed.
        style: A class for its colour: the format of a weight, else the kind.
        x: From the left of the card.
        y: From the top of the row.
        width: Of the chip.
    """

    kind: str
    value: int
    label: str
    style: str
    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Row:
    """An op of a card; lengths in pixels.

    Attributes:
        op: Its index.
        style: The class of its colour.
        title: Its kind.
        note: Its attributes.
        result: Shapes of its results.
        chips: What it reads beside the lines.
        height: Of the row with its chips.
        width: That it needs.
    """

    op: int
    style: str
    title: str
    note: str
    result: str
    chips: tuple[Chip, ...]
    height: float
    width: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What rows are made of: the graph, its wiring and weights, and the dtype that is not said because it is usual."""

    graph: Graph
    wiring: Wiring
    weights: tuple[WeightEntry, ...]
    usual: str


def row_of(facts: Facts, index: int) -> Row:
    """Lays out the row of an op."""
    op = facts.graph.ops[index]
    values = facts.graph.values
    results = ", ".join(typed(values[id_], facts.usual) for id_ in op.outputs[:2])
    if len(op.outputs) > 2:
        results += f", {len(op.outputs) - 2} more"
    title, note = text.printable(op.kind, 40), summary(op)
    chips: list[Chip] = []
    x, y = PAD, ROW
    for id_ in dict.fromkeys(op.inputs):
        told = _told(facts, id_)
        if told is None:
            continue
        kind, label, style = told
        width = text.mono_width(label, SMALL) + 14
        if chips and x + width > _WIDEST:
            x, y = PAD, y + CHIP + 4
        chips.append(Chip(kind, id_, label, style, x, y, width))
        x += width + CHIP_GAP
    first = text.sans_width(title, TITLE) + text.mono_width(note, SMALL) + text.mono_width(results, SMALL)
    width = max(first + 2 * PAD + (26 if note else 14), *(chip.x + chip.width + PAD for chip in chips), 96.0)
    height = ROW + (y - ROW + CHIP + 6 if chips else 0.0)
    return Row(index, class_of(op.kind), title, note, results, tuple(chips), height, width)


def typed(value: Value, usual: str) -> str:
    """The shape, and the dtype if it is not the usual one."""
    said = text.shape(value.shape)
    return said if value.dtype == usual else f"{said} {text.dtype(value.dtype)}"


def _told(facts: Facts, id_: int) -> tuple[str, str, str] | None:
    value = facts.graph.values[id_]
    if value.weight is not None:
        entry = facts.weights[value.weight]
        what = text.dtype(entry.dtype) if entry.format == "dense" else entry.format
        return "weight", f"{what} {text.shape(entry.shape)} · {text.size(entry.nbytes)}", style_of(entry)
    if value.kind == "state":
        held = f"{text.shape(value.shape)} · {text.size(nbytes(value))}"
        return "state", f"{name_of(value)} {held}", "state"
    if id_ in facts.wiring.tags:
        return "input", name_of(value), "input"
    return None


def name_of(value: Value) -> str:
    """What a value is for, or else its name."""
    role = value.role
    if role is None:
        return text.short(value.name, _NAME)
    return text.short(role.name + (f" slot {role.slot}" if role.slot else ""), _NAME)


def style_of(entry: WeightEntry) -> str:
    """The class for the colour of a weight."""
    return entry.format if entry.format != "dense" else f"dense-{entry.dtype}"


def nbytes(value: Value) -> int:
    """Of a dense value."""
    return math.prod(value.shape) * ITEM_BYTES[value.dtype]
