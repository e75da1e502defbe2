"""Errors of the ONNX front end."""

from __future__ import annotations

from ..common.errors import CompileError

_MOST_CHARS = 120


def shown(text: str, most: int = _MOST_CHARS) -> str:
    """A text from a file as it may stand in a message: printable, and at most `most` characters of it."""
    clean = "".join(char if char.isprintable() else "?" for char in text[: most + 1])
    return clean if len(clean) <= most else f"{clean[:most]}..."


def reason(error: Exception) -> str:
    """The text of an error of another package, in one line."""
    return shown(" ".join(str(error).split())) or type(error).__name__


class UnsupportedNodeError(CompileError):
    """A node, or a form of it, that the compiler does not lower."""
