"""Writes a measured level as elements of SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import text
from .cards import Block, Card, End
from .geometry import Box, Placed
from .measure import FOOT, HEAD, INSET, Sized, block_title, inner_left, pill, port_x
from .rows import CHIP, PAD, ROW, SMALL, TITLE, Facts, Row
from .totals import Totals


@dataclass(slots=True)
class Painter:
    """Collects the elements of a drawing."""

    facts: Facts
    totals: Totals
    parts: list[str] = field(default_factory=list)
    marks: int = 0  # of lines that are cut

    def level(self, sized: Sized, left: float, top: float) -> None:
        """Paints a level with its upper left corner there: lines first, so that boxes hide none of their ends."""
        placed = sized.placed
        self.parts.append(f'<g transform="translate({left:.1f} {top:.1f})">')
        self._lines(placed)
        for index, (node, box) in enumerate(zip(sized.level.nodes, sized.boxes, strict=True)):
            x, y = placed.x[index], placed.y[index]
            inside = sized.inner[index]
            if isinstance(node, Card):
                self._card(sized.rows[index], box, x, y)
            elif isinstance(node, Block) and inside is not None:
                self._block(node, box, inside, x, y)
            elif isinstance(node, End):
                self._end(node, box, x, y)
        self._cuts(placed)
        self.parts.append("</g>")

    def _lines(self, placed: Placed) -> None:
        for (_, value), path in placed.paths.items():
            self.parts.append(
                f'<g class="flow" data-value="{value}">{self._title(value)}<path class="line" d="{path}"/>'
            )
            self.parts += [_tip(x, y, "tip") for x, y in placed.tips[_, value]]
            self.parts.append("</g>")

    def _cuts(self, placed: Placed) -> None:
        numbers: dict[tuple[int, int], int] = {}
        for wire, begin, end in placed.cuts:
            if wire.group not in numbers:
                self.marks += 1
                numbers[wire.group] = self.marks
                self._mark(f"{self.marks} ↓", begin[0] + 26, begin[1] + 11, wire.group[1])
            self._mark(f"↓ {numbers[wire.group]}", end[0] - 26, end[1] - 11, wire.group[1])

    def _mark(self, label: str, x: float, y: float, value: int) -> None:
        width = text.mono_width(label, SMALL) + 10
        self.parts.append(
            f'<g class="flow" data-value="{value}">{self._title(value)}<rect class="cut" x="{x - width / 2:.1f}" '
            f'y="{y - 9:.1f}" width="{width:.1f}" height="18" rx="9"/>'
            f'<text class="mono" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{label}</text></g>'
        )

    def _card(self, rows: Sequence[Row], box: Box, x: float, y: float) -> None:
        self.parts.append(f'<g class="card" transform="translate({x:.1f} {y:.1f})">')
        self.parts.append(f'<rect class="frame" width="{box.width:.1f}" height="{box.height:.1f}" rx="7"/>')
        top = 0.0
        for row in rows:
            if top:
                self.parts.append(f'<line class="rule" x1="6" x2="{box.width:.1f}" y1="{top:.1f}" y2="{top:.1f}"/>')
            self._row(row, box.width, top)
            top += row.height
        self.parts.append("</g>")

    def _row(self, row: Row, width: float, top: float) -> None:
        middle = ROW / 2
        title = text.sans_width(row.title, TITLE) + PAD + 4
        note = (
            f'<text class="mono soft" x="{title:.1f}" y="{middle}">{text.escaped(row.note)}</text>' if row.note else ""
        )
        self.parts.append(
            f'<g class="op {row.style}" data-op="{row.op}" transform="translate(0 {top:.1f})">'
            f'<rect class="hit" width="{width:.1f}" height="{row.height:.1f}" fill="none" pointer-events="all"/>'
            f'<rect class="bar" x="0" y="4" width="4" height="{row.height - 8:.1f}" rx="2"/>'
            f'<text class="name" x="{PAD}" y="{middle}">{text.escaped(row.title)}</text>{note}'
            f'<text class="mono" x="{width - PAD:.1f}" y="{middle}" text-anchor="end">{text.escaped(row.result)}</text>'
        )
        for chip in row.chips:
            self.parts.append(
                f'<g class="chip {chip.kind} {chip.style}" data-value="{chip.value}">{self._title(chip.value)}'
                f'<rect x="{chip.x:.1f}" y="{chip.y:.1f}" width="{chip.width:.1f}" height="{CHIP}" rx="5"/>'
                f'<text class="mono" x="{chip.x + 7:.1f}" y="{chip.y + CHIP / 2:.1f}">{text.escaped(chip.label)}</text>'
                "</g>"
            )
        self.parts.append("</g>")

    def _block(self, block: Block, box: Box, inside: Sized, x: float, y: float) -> None:
        repeat, w, h = block.repeat, box.width, box.height
        self.parts.append(
            f'<g class="block" data-start="{repeat.start}" data-period="{repeat.period}" data-count="{repeat.count}" '
            f'transform="translate({x:.1f} {y:.1f})">'
        )
        for shift in (8, 4):  # sheets behind, so that it looks like several
            self.parts.append(f'<rect class="sheet" x="{shift}" y="{shift}" width="{w:.1f}" height="{h:.1f}" rx="10"/>')
        self.parts.append(f'<rect class="body" width="{w:.1f}" height="{h:.1f}" rx="10"/>')
        left, bottom = inner_left(box, inside), h - FOOT
        for kind, ports, y0, y1 in (("in", block.ports.ins, HEAD, HEAD + INSET),
                                    ("out", block.ports.outs, bottom - INSET, bottom)):  # fmt: skip
            for port in range(len(ports)):
                at = port_x(box, inside, kind, port)
                self.parts.append(f'<path class="line" d="M{at:.1f} {y0:.1f}V{y1:.1f}"/>')
        self.parts.append(
            f'<path class="strip" d="M0 {HEAD}V10Q0 0 10 0H{w - 10:.1f}Q{w:.1f} 0 {w:.1f} 10V{HEAD}Z"/>'
            f'<path class="strip" d="M0 {bottom:.1f}V{h - 10:.1f}Q0 {h:.1f} 10 {h:.1f}H{w - 10:.1f}'
            f'Q{w:.1f} {h:.1f} {w:.1f} {h - 10:.1f}V{bottom:.1f}Z"/>'
            f'<text class="strip-text" x="14" y="{HEAD / 2}">{block_title(block)}</text>'
            f'<text class="strip-note" x="{w - 14:.1f}" y="{HEAD / 2}" text-anchor="end">{self._note(block)}</text>'
        )
        if any(block.ports.carried):
            at = w - 15
            self.parts.append(f'<path class="loop" d="M{at:.1f} {bottom:.1f}V{HEAD + 8:.1f}"/>')
            self.parts.append(f'<path class="loop-tip" d="M{at:.1f} {HEAD:.1f}l-5 9h10z"/>')
        self.level(inside, left, HEAD + INSET)
        self.parts.append("</g>")

    def _note(self, block: Block) -> str:
        repeat = block.repeat
        said = [_layers(self.facts, block), f"{repeat.period} ops"]
        weights, states = self.totals.of_block(repeat), self.totals.states_of_block(repeat)
        if weights:
            said.append(f"weights {text.size(weights)}")
        if states:
            said.append(f"states {text.size(states)}")
        return text.escaped(" · ".join(filter(None, said)))

    def _end(self, end: End, box: Box, x: float, y: float) -> None:
        if end.kind in ("in", "out"):
            self.parts.append(
                f'<circle class="port" cx="{x + box.width / 2:.1f}" cy="{y + box.height / 2:.1f}" '
                f'r="{box.width / 2:.1f}">{self._title(end.value)}</circle>'
            )
            return
        label = text.escaped(pill(self.facts, end))
        self.parts.append(
            f'<g class="end {end.kind}" data-value="{end.value}" transform="translate({x:.1f} {y:.1f})">'
            f'{self._title(end.value)}<rect width="{box.width:.1f}" height="{box.height:.1f}" rx="13"/>'
            f'<text class="mono" x="{box.width / 2:.1f}" y="{box.height / 2}" text-anchor="middle">{label}</text></g>'
        )

    def _title(self, value: int) -> str:
        tensor = self.facts.graph.values[value]
        what = f"{tensor.name}: {tensor.kind} {tensor.format} {tensor.dtype} {list(tensor.shape)}"
        return f"<title>{text.escaped(what, 300)}</title>"


def _layers(facts: Facts, block: Block) -> str:
    """layers 0 to 27, if the states of the repeats say so by their roles."""
    repeat, graph = block.repeat, facts.graph
    layers = []
    for start in range(repeat.start, repeat.stop, repeat.period):
        ids = {id_ for op in graph.ops[start : start + repeat.period] for id_ in op.inputs}
        roles = [graph.values[id_].role for id_ in sorted(ids) if graph.values[id_].kind == "state"]
        layers += sorted({role.layer for role in roles if role is not None and role.layer is not None})
    return f"layers {min(layers)} to {max(layers)}" if layers else ""


def _tip(x: float, y: float, style: str) -> str:
    return f'<path class="{style}" d="M{x:.1f} {y:.1f}l-4.5 -8h9z"/>'
