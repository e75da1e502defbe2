"""Text files that a person names: they may be anything, a device or a FIFO too."""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 1 << 20


def read_small_file(path: Path) -> str:
    """The text of a file. ValueError if it is no regular file, too large or no UTF-8; OSError if it is unreadable."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: is not a regular file")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path}: has {size} bytes, expected at most {MOST_BYTES}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not UTF-8 text") from None
