"""Texts of a drawing. Names come from files that nobody vouches for: what is printed is cut, printable and escaped."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape

_NARROW, _WIDE = frozenset("fijlrtI.,:;'|!()[]{}/ "), frozenset("mwMW@%")
_SHORT_DTYPES = {"float16": "f16", "float32": "f32", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16",
                 "int32": "i32", "uint32": "u32"}  # fmt: skip


def printable(text: str, limit: int) -> str:
    """At most `limit` characters, without any that XML, HTML or a reader's eye would take for something else."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def escaped(text: str, limit: int = 200) -> str:
    """`printable`, for the text or an attribute of an element."""
    return escape(printable(text, limit))


def short(text: str, limit: int) -> str:
    """As `printable`; the middle is left out, because names differ at their ends."""
    clean = printable(text, 2000)
    if len(clean) <= limit:
        return clean
    head = (limit - 1) // 3
    return clean[:head] + "…" + clean[len(clean) - (limit - 1 - head) :]


def size(nbytes: int) -> str:
    """Bytes in decimal units, as `tcim-lite inspect` has them."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}" if nbytes < 1000 * factor else f"{nbytes / factor:.0f} {unit}"
    return f"{nbytes} B"


def shape(extents: Sequence[int]) -> str:
    """Extents with a times sign between them."""
    return "×".join(map(str, extents))


def dtype(name: str) -> str:
    """f16 for float16."""
    return _SHORT_DTYPES.get(name, name)


def sans_width(text: str, pixels: float) -> float:
    """About how wide a text is in a bold sans-serif font; the viewer's fonts are not known, so this is a wide one."""
    return pixels * sum(_em(char) for char in text)


def mono_width(text: str, pixels: float) -> float:
    """How wide a text is in a monospaced font: 0.6 em a character in nearly all of them."""
    return pixels * 0.605 * sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _em(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    if char in _NARROW:
        return 0.45
    if char in _WIDE:
        return 1.0
    return 0.78 if char.isupper() else 0.69
