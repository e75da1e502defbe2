"""How the content of a chunk is packed (docs/recording.md, section 2)."""

from __future__ import annotations

import importlib
import zlib
from typing import Any

__all__ = ["NONE", "ZLIB", "ZSTD", "has_zstd", "most_plain_bytes", "packed", "unpacked"]

NONE, ZLIB, ZSTD = 0, 1, 2
_NAMES = {NONE: "none", ZLIB: "zlib", ZSTD: "zstd"}
# The most bytes that one stored byte can stand for: a zlib match of 258 bytes takes 2 bits, a zstd block of 128 KiB
# takes 4 bytes.
_MOST_RATIO = {ZLIB: 1040, ZSTD: 32 << 10}
_LEVELS = {ZLIB: 1, ZSTD: 3}


def _zstd() -> Any:
    """The module of the standard library (from Python 3.14 on), or the package that brings it to others; else None."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def has_zstd() -> bool:
    """Whether this Python can pack with zstd."""
    return _zstd() is not None


def most_plain_bytes(compression: int, stored: int) -> int:
    """The most bytes that `stored` bytes can stand for.

    Raises:
        ValueError: an unknown compression.
    """
    if compression not in _NAMES:
        known = ", ".join(f"{number} ({name})" for number, name in _NAMES.items())
        raise ValueError(f"compression {compression} is unknown; expected one of {known}")
    return stored if compression == NONE else stored * _MOST_RATIO[compression] + 64


def packed(content: bytes, compression: int) -> tuple[int, bytes]:
    """The compression and the bytes to store: as they are, unless packing saves an eighth at least."""
    if compression == NONE:
        return NONE, content
    module = zlib if compression == ZLIB else _zstd()
    made = module.compress(content, _LEVELS[compression])
    return (compression, made) if len(made) <= len(content) * 7 // 8 else (NONE, content)


def unpacked(content: bytes, compression: int, plain: int) -> bytes:
    """Exactly `plain` bytes.

    Raises:
        ValueError: damage, another size, or no zstd at hand.
    """
    if compression == NONE:
        return content
    module = None if compression == ZLIB else _zstd()
    if compression == ZSTD and module is None:
        raise ValueError("packed with zstd, which Python has from 3.14 on; pip install backports.zstd")
    unpacker: Any = zlib.decompressobj() if module is None else module.ZstdDecompressor()
    try:
        # One byte more shows that there is more.
        made: bytes = unpacker.decompress(content, plain + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    except Exception as error:  # of whichever zstd it is
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if len(made) != plain or not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"it does not unpack to {plain} bytes")
    return made
