"""Small pieces of index.html."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ..results import FLAKY, NOT_RUN, PASSED, UNEXPECTED, WAIVED, Result

CLASS = {PASSED: "pass", NOT_RUN: "none", WAIVED: "waived", UNEXPECTED: "waived", FLAKY: "flaky"}


def class_of(outcome: str) -> str:
    """The class that gives an outcome its colour."""
    return CLASS.get(outcome, "fail")


def worst(results: Iterable[Result]) -> str:
    """The class of a group of results: the worst one, and `none` only if nothing ran."""
    classes = {class_of(result.outcome) for result in results}
    return next((name for name in ("fail", "flaky", "waived", "pass") if name in classes), "none")


def mark(text: str, state: str | None = None) -> str:
    """A coloured label; without a state the text is an outcome."""
    return f'<span class="mark {state or class_of(text)}">{escape(text)}</span>'


def section(title: str, body: str, note: str = "") -> str:
    """A card."""
    return f"<section><h2>{title}</h2>{f'<p class=note>{escape(note)}</p>' if note else ''}{body}</section>"


def table(rows: str, head: str = "", kind: str = "") -> str:
    """A table that scrolls sideways where the window is narrow."""
    return f'<div class="scroll"><table class="{kind}">{head}{rows}</table></div>'


def bar(share: float, state: str = "") -> str:
    """A horizontal bar that is full at 1."""
    return f'<span class="bar {state}"><i style="width:{100 * min(1.0, max(0.0, share)):.1f}%"></i></span>'


def plural(count: int, noun: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def cut(text: str, width: int) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= width else text[: width - 1] + "…"
