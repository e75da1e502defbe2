"""Draws a trace (docs/trace.md) as an SVG: the lanes of one process, as Perfetto shows them, from a file's own numbers.

python docs/make_trace_picture.py TRACE.json OUT.svg --begin 0 --end 3.5
"""

from __future__ import annotations

import argparse
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WIDTH, LEFT, ROW, DEPTH = 1200, 170, 20, 3  # pixels; rows of a lane at most
COLORS = {"call": "#4c78a8", "run": "#f58518", "layer": "#eeca3b", "op": "#b279a2", "modelled": "#54a24b"}
LETTER = 6.8  # pixels of one at this size


def draw(events: list[Mapping[str, Any]], begin_ms: float, end_ms: float) -> str:
    """The picture of what lies between two times after the first slice."""
    slices = [event for event in events if event["ph"] == "X"]
    start = min(event["ts"] for event in slices)
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    scale = (WIDTH - LEFT - 10) / (end_ms - begin_ms)
    rows: list[str] = []
    top = 30
    for tid in sorted(lanes):
        inside = sorted((e for e in slices if e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"]))
        deepest, open_until = 0, []
        drawn = []
        for event in inside:
            at, length = (event["ts"] - start) / 1e3, event["dur"] / 1e3
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            depth = len(open_until)
            open_until.append(event["ts"] + event["dur"])
            if at + length < begin_ms or at > end_ms or depth >= DEPTH:
                continue
            deepest = max(deepest, depth)
            left, right = max(at, begin_ms), min(at + length, end_ms)
            x, width = LEFT + (left - begin_ms) * scale, max((right - left) * scale, 0.7)
            drawn.append(_box(x, top + depth * ROW, width, event["name"], COLORS[event["cat"].split(",")[0]]))
        if not drawn:
            continue
        rows.append(f'<text x="6" y="{top + 14}">{html.escape(lanes[tid])}</text>')
        rows += drawn
        top += (deepest + 1) * ROW + 8
    axis = [
        f'<text x="{LEFT + (WIDTH - LEFT - 10) * part / 5:.1f}" y="16" fill="#666">'
        f"{begin_ms + (end_ms - begin_ms) * part / 5:.1f} ms</text>"
        for part in range(5)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" font-family="monospace" '
        f'font-size="11"><rect width="{WIDTH}" height="{top}" fill="#fff"/>'
    )
    return "\n".join([head, *axis, *rows, "</svg>", ""])


def _box(x: float, y: float, width: float, name: str, color: str) -> str:
    shown = name[: int((width - 6) / LETTER)] if width > 24 else ""
    text = f'<text x="{x + 3:.1f}" y="{y + 13}">{html.escape(shown)}</text>' if shown else ""
    return (
        f'<g><title>{html.escape(name)}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 2}" '
        f'fill="{color}" fill-opacity="0.75"/>{text}</g>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--begin", type=float, default=0.0, help="ms after the first slice")
    parser.add_argument("--end", type=float, required=True, help="ms after the first slice")
    args = parser.parse_args()
    args.output.write_text(draw(json.loads(args.trace.read_text()), args.begin, args.end))


if __name__ == "__main__":
    main()
