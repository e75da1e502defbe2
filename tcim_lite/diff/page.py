"""index.html: the errors of both runs over the layers, in one file that loads nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from .report import Finding, Point, Report

_FLOOR, _TOP = 1e-8, 10.0  # of the scale; equal tensors are drawn at the floor
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _PAD = 1040, 280, 56, 34, 12
_LAYER = re.compile(r"layers\.(\d+)\.")
_STYLE = """
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --text: #1b1f27; --soft: #5c6675; --line: #e2e6ec;
  --whole: #2f5fd0; --own: #b3261e; --bound: #8a5a00; --good: #16794a }
@media (prefers-color-scheme: dark) { :root { --back: #12151b; --card: #1b2029; --text: #e7eaf0; --soft: #98a2b3;
  --line: #2d3440; --whole: #86a8ff; --own: #ff8f87; --bound: #f0be5f; --good: #63d49a } }
* { box-sizing: border-box }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 1120px; margin: 0 auto; padding: 36px 20px 80px }
h1 { margin: 0 0 6px; font-size: 28px } h2 { margin: 0 0 10px; font-size: 17px } p { margin: 4px 0 }
section { margin-top: 18px; padding: 18px 20px; border: 1px solid var(--line); border-radius: 12px;
  background: var(--card); overflow-x: auto }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere } .soft { color: var(--soft) }
.bad { color: var(--own) } .good { color: var(--good) }
svg { display: block; width: 100%; min-width: 640px; height: auto; font: 11px system-ui, sans-serif }
svg text { fill: var(--soft) } .grid { stroke: var(--line) } .layer { fill: var(--line); opacity: .35 }
.whole { fill: none; stroke: var(--whole); stroke-width: 2 } .whole-dot { fill: var(--whole) }
.own-dot { fill: var(--own) } .bound { fill: none; stroke: var(--bound); stroke-dasharray: 4 3 }
.found { stroke: var(--own); stroke-width: 1.5 }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 50%; margin: 0 5px 0 14px }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 13px }
th { text-align: right; color: var(--soft); font-weight: 600 } td { text-align: right; white-space: nowrap }
th, td { padding: 3px 9px; border-bottom: 1px solid var(--line) } th:first-child, td:first-child { text-align: left }
tr.wrong td { color: var(--own); font-weight: 600 } summary { cursor: pointer; color: var(--soft) }
"""


def write_page(path: Path, report: Report, right: str, other: str) -> None:
    """Writes the page of a comparison; `right` and `other` are what the user called the sides."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sections = "".join(_section(report, step, points) for step, points in enumerate(report.points))
    path.write_text(
        f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Difference of two runs</title><style>{_STYLE}</style></head><body><main>
<h1>Where two runs differ</h1>
<p class="soft">right: <code>{escape(right)}</code><br>other: <code>{escape(other)}</code><br>
bounds: {report.mode}; {len(report.points)} steps</p>
<section>{_verdict(report)}</section>
{sections}
</main></body></html>
""",
        encoding="utf-8",
    )


def _verdict(report: Report) -> str:
    found, calls = report.finding, ""
    if report.inputs:
        calls = f'<p class="bad">The calls differ: {escape(", ".join(report.inputs[:4]))}.</p>'
    if found is None:
        return calls + '<h2 class="good">No op leaves its bound</h2>'
    own = found.own
    again = "" if found.cut is None else (
        f"<p>To repeat: <code>tcim-lite dump {escape(str(found.cut))}/cut.hmm "
        f"--input {escape(str(found.cut))}/inputs -o OUT</code></p>"
    )  # fmt: skip
    numbers = (
        f"Error {own.relative:.3g} {found.where}, bound {found.bound:.3g}; {own.differing} of {own.elements} elements, "
        f"by at most {own.steps:.4g} steps of the format; cosine {own.cosine:.6f}."
    )
    return (
        f'{calls}<h2 class="bad">First beyond its bound: {escape(found.described)}</h2>'
        f"<p>Step {found.step}, {escape(found.graph)}. {numbers}</p>{again}"
    )


def _section(report: Report, step: int, points: Sequence[Point]) -> str:
    facts = report.right.steps[step]
    shown = [point for point in points if point.is_result and point.whole is not None]
    equal = sum(point.whole.equal for point in shown if point.whole is not None)
    title = f"Step {step}: {escape(facts.graph)}, tokens {facts.valid} to {facts.valid + facts.current - 1}"
    if equal == len(shown):
        return f'<section><h2>{title}</h2><p class="good">All {equal} tensors are equal.</p></section>'
    looked = any(point.own is not None for point in shown)
    keys = '<span class="key" style="background:var(--whole)"></span>of the two runs'
    if looked:
        keys += '<span class="key" style="background:var(--own)"></span>of the ops alone, on right inputs'
        keys += '<span class="key" style="background:var(--bound)"></span>their bound'
    found = report.finding if report.finding is not None and report.finding.step == step else None
    return (
        f'<section><h2>{title}</h2><p class="soft">{equal} of {len(shown)} tensors are equal. Relative error in the '
        f"Euclidean norm, logarithmic; equal tensors lie on the floor.{keys}</p>{_chart(shown, found)}"
        f"<details{' open' if found else ''}><summary>All tensors</summary>{_table(shown)}</details></section>"
    )


def _y(error: float) -> float:
    clipped = min(max(error, _FLOOR), _TOP)
    share = math.log10(clipped / _FLOOR) / math.log10(_TOP / _FLOOR)
    return _PAD + (1 - share) * (_HEIGHT - _PAD - _BOTTOM)


def _chart(points: Sequence[Point], found: Finding | None) -> str:
    width = (_WIDTH - _LEFT - _PAD) / len(points)
    xs = [_LEFT + (index + 0.5) * width for index in range(len(points))]
    parts = []
    for begin, end, name in _layers(points):
        left, right = _LEFT + begin * width, _LEFT + end * width
        if int(name) % 2:
            parts.append(f'<rect class="layer" x="{left:.1f}" y="{_PAD}" width="{right - left:.1f}" '
                         f'height="{_HEIGHT - _PAD - _BOTTOM}"/>')  # fmt: skip
        if right - left > 12:
            parts.append(f'<text x="{(left + right) / 2:.1f}" y="{_HEIGHT - 18}" text-anchor="middle">{name}</text>')
    for power in range(-8, 2):
        y = _y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _PAD}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    line = " ".join(f"{x:.1f},{_y(_whole(point)):.1f}" for x, point in zip(xs, points, strict=True))
    parts.append(f'<polyline class="whole" points="{line}"/>')
    if any(point.bound for point in points):
        line = " ".join(f"{x:.1f},{_y(point.bound):.1f}" for x, point in zip(xs, points, strict=True))
        parts.append(f'<polyline class="bound" points="{line}"/>')
    for x, point in zip(xs, points, strict=True):
        told = f"<title>{escape(point.name)}: {_whole(point):.3g}</title>"
        parts.append(f'<circle class="whole-dot" cx="{x:.1f}" cy="{_y(_whole(point)):.1f}" r="3">{told}</circle>')
        if point.own is not None:
            told = f"<title>{escape(point.name)} alone: {point.own.relative:.3g}, bound {point.bound:.3g}</title>"
            parts.append(
                f'<circle class="own-dot" cx="{x:.1f}" cy="{_y(point.own.relative):.1f}" r="3">{told}</circle>'
            )
    if found is not None:
        made_by = [index for index, point in enumerate(points) if point.wrong or point.name == found.name]
        if made_by:
            x = xs[made_by[0]]
            parts.append(f'<line class="found" x1="{x:.1f}" x2="{x:.1f}" y1="{_PAD}" y2="{_HEIGHT - _BOTTOM}"/>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 3}" text-anchor="middle">layer</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="errors over layers">{"".join(parts)}</svg>'


def _layers(points: Sequence[Point]) -> list[tuple[int, int, str]]:
    """[begin, end) of each layer: a tensor whose name has no layer belongs to the one before it."""
    spans: list[tuple[int, int, str]] = []
    current = "0"
    for index, point in enumerate(points):
        named = _LAYER.search(point.name)
        current = named[1] if named else current
        if spans and spans[-1][2] == current:
            spans[-1] = (spans[-1][0], index + 1, current)
        else:
            spans.append((index, index + 1, current))
    return spans


def _table(points: Sequence[Point]) -> str:
    rows = []
    before = 0.0
    for point in points:
        whole, own = point.whole, point.own
        assert whole is not None
        growth = f"{whole.relative / before:.2f}" if before and whole.relative else ""
        before = whole.relative
        alone = "" if own is None else f"{own.relative:.2e}"
        limit = "" if own is None else f"{point.bound:.2g}"
        rows.append(
            f"<tr{' class=wrong' if point.wrong else ''}><td><code>{escape(point.name)}</code></td>"
            f"<td>{whole.relative:.2e}</td><td>{growth}</td><td>{whole.cosine:.6f}</td><td>{whole.largest:.3g}</td>"
            f"<td>{whole.steps:.4g}</td><td>{alone}</td><td>{limit}</td></tr>"
        )
    heads = ("tensor", "error", "growth", "cosine", "largest", "steps of the format", "alone", "bound")
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{''.join(rows)}</table>"


def _whole(point: Point) -> float:
    return point.whole.relative if point.whole is not None else 0.0
