"""The graphs of a package as one page, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from ..hmm import Value
from . import text
from .fold import fold
from .rows import nbytes
from .svg import STYLE, Part, svg
from .wiring import Wiring

_MOST_UNFOLDED = 10_000  # operands of all ops of a graph that is also drawn with every repeat
_NAME = 300  # characters of a name
_HERE = Path(__file__).parent


def page(title: str, parts: Sequence[Part]) -> str:
    """Draws parts, one of which is shown at a time.

    Args:
        title: Of the page.
        parts: At least one.

    Returns:
        HTML with all drawings, and the operands of every op for its side panel.
    """
    views = []
    for number, part in enumerate(parts):
        views.append(_view(part, number, folded=True))
        operands = sum(len(op.inputs) for op in part.graph.ops)
        if operands <= _MOST_UNFOLDED and any(not isinstance(item, int) for item in fold(part.graph)):
            views.append(_view(part, number, folded=False))
    # "<" begins markup even inside a script, so none may be left.
    data = json.dumps([_data(part) for part in parts], separators=(",", ":")).replace("<", "\\u003c")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{text.escaped(title)}</title><style>{STYLE}{style}</style></head>
<body>
<header><b>{text.escaped(title, 60)}</b><select id="part" aria-label="graph"></select>
<button id="folded" hidden></button><span class="grow"></span>
<input id="search" type="search" placeholder="op or name of a value" aria-label="search">
<button id="out" aria-label="smaller">−</button><button id="in" aria-label="larger">+</button>
<button id="fit">Fit</button></header>
<main id="view">{"".join(views)}</main><aside id="panel"></aside>
<script type="application/json" id="data">{data}</script>
<script>{script}</script></body></html>
"""


def _view(part: Part, number: int, *, folded: bool) -> str:
    drawing = svg(part, folded=folded, style=False)
    return drawing.replace("<svg ", f'<svg data-part="{number}" data-folded="{int(folded)}" ', 1)


def _data(part: Part) -> dict[str, object]:
    graph, container = part.graph, part.container
    wiring = Wiring(graph)
    custom = text.printable(container.custom_msg, 500)
    facts = [f"by {text.printable(container.producer, 40)}, format {'.'.join(map(str, container.version))}", custom]
    values = [[*_described(part, value), wiring.maker[id_]] for id_, value in enumerate(graph.values)]
    ops = [
        [op.kind, op.inputs, op.outputs, {text.printable(k, 100): _attribute(v) for k, v in op.attributes.items()}]
        for op in graph.ops
    ]
    return {"name": text.printable(part.name, 100), "facts": [*filter(None, facts)], "values": values, "ops": ops}


def _attribute(value: object) -> str:
    return text.printable(str(value), _NAME)


def _described(part: Part, value: Value) -> list[object]:
    role = value.role
    said = "" if role is None else text.printable(role.name, 100)
    if role is not None:
        said += "" if role.layer is None else f", layer {role.layer}"
        said += "" if role.slot is None else f", slot {role.slot}"
    held = nbytes(value) if value.weight is None else part.container.weights[value.weight].nbytes
    return [text.printable(value.name, _NAME), value.kind, value.dtype, value.shape, value.format, held, said]
