"""Errors of the ONNX front end."""

from __future__ import annotations

from ..common.errors import CompileError

_MOST_CHARS = 120


def shown(text: str) -> str:
    """A name from a file as it may stand in a message: printable, and not too long."""
    clean = "".join(char if char.isprintable() else "?" for char in text[: _MOST_CHARS + 1])
    return clean if len(clean) <= _MOST_CHARS else f"{clean[:_MOST_CHARS]}..."


class UnsupportedNodeError(CompileError):
    """A node, or a form of it, that the compiler does not lower."""
