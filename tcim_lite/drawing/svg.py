"""One graph as an SVG file that stands alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..hmm import Container, Graph
from . import text
from .cards import build
from .fold import flat, fold
from .measure import measure
from .paint import Painter
from .rows import SMALL, Facts, name_of, typed
from .totals import Totals
from .wiring import Wiring

STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
_MARGIN = 36.0
_LEAST_WIDTH = 900.0


@dataclass(frozen=True, slots=True)
class Part:
    """A graph of a package: of several devices, one for each.

    Attributes:
        name: To choose it by: the file's, and the device's if there are several.
        container: The file.
        graph: Of this part.
    """

    name: str
    container: Container
    graph: Graph


def svg(part: Part, *, folded: bool = True, style: bool = True) -> str:
    """Draws a part.

    Args:
        part: The graph.
        folded: Whether blocks that repeat are drawn once.
        style: Whether the element brings its style sheet.

    Returns:
        An `<svg>` element; `data-op` of rows and `data-value` of lines and chips are indices into the graph.
    """
    graph = part.graph
    wiring = Wiring(graph)
    facts = Facts(graph, wiring, part.container.weights, _usual(graph))
    totals = Totals(facts)
    items = fold(graph) if folded else flat(graph)
    sized = measure(facts, build(wiring, items))
    painter = Painter(facts, totals)
    head, head_height = _head(part, facts, totals)
    width = max(sized.placed.width + 2 * _MARGIN + 10, _LEAST_WIDTH)
    height = head_height + sized.placed.height + 2 * _MARGIN
    painter.level(sized, (width - sized.placed.width) / 2, head_height + _MARGIN / 2)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="graph of {text.escaped(part.name)}">'
        f"{f'<style>{STYLE}</style>' if style else ''}{head}{''.join(painter.parts)}</svg>\n"
    )


def _usual(graph: Graph) -> str:
    counts = Counter(value.dtype for value in graph.values if value.kind == "intermediate")
    return counts.most_common(1)[0][0] if counts else ""


def _head(part: Part, facts: Facts, totals: Totals) -> tuple[str, float]:
    """Title, totals, a bar of the weights' bytes by format, and the inputs that have no lines."""
    container, graph = part.container, part.graph
    states, state_bytes = totals.states
    said = [f"{len(graph.ops)} ops", f"{text.size(totals.weights)} of weights" if totals.weights else ""]
    if states:
        said.append(f"{states} states, {text.size(state_bytes)}")
    said += [f"values {facts.usual}" if facts.usual else "", f"target {container.target}"]
    parts = [
        f'<text class="h1" x="{_MARGIN}" y="44">{text.escaped(part.name, 60)}</text>',
        f'<text class="h2" x="{_MARGIN}" y="74">{text.escaped(" · ".join(filter(None, said)), 200)}</text>',
    ]
    top = 96.0
    if totals.weights:
        parts.append(_bar(totals, top))
        top += 46
    x = _MARGIN
    for id_ in sorted(facts.wiring.tags, key=graph.inputs.index):
        value = graph.values[id_]
        label = f"{name_of(value)} {typed(value, facts.usual)}"
        wide = text.mono_width(label, SMALL) + 14
        if x + wide > _LEAST_WIDTH - _MARGIN:
            x, top = _MARGIN, top + 26
        parts.append(
            f'<g class="chip input" data-value="{id_}"><rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="20" '
            f'rx="5"/><text class="mono" x="{x + 7:.1f}" y="{top + 10}">{text.escaped(label)}</text></g>'
        )
        x += wide + 6
    return "".join(parts), top + (30 if facts.wiring.tags else 0)


def _bar(totals: Totals, top: float) -> str:
    width = _LEAST_WIDTH - 2 * _MARGIN
    parts, x, label_x = [], _MARGIN, _MARGIN
    for style, nbytes in totals.formats.items():
        share = max(width * nbytes / totals.weights, 1.0)
        label = f"{style.removeprefix('dense-')} {text.size(nbytes)}"
        wide = text.mono_width(label, SMALL) + 24
        parts.append(
            f'<g class="chip {style}"><rect class="share" x="{x:.1f}" y="{top}" width="{share:.1f}" height="14"/>'
            f'<rect x="{label_x:.1f}" y="{top + 22}" width="11" height="11" rx="3"/>'
            f'<text class="mono" x="{label_x + 16:.1f}" y="{top + 28}">{text.escaped(label)}</text></g>'
        )
        x += share
        label_x += wide + 8
    return "".join(parts)
