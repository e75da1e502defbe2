"""Reads little-endian fields one after the other and refuses to leave its bytes."""

from __future__ import annotations

import struct
from typing import Any

from ..errors import HmmFormatError


class Cursor:
    """A position in the bytes of one section. `label` names it in messages."""

    def __init__(self, data: memoryview, label: str) -> None:
        self._data = data
        self._position = 0
        self.label = label

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def take(self, nbytes: int, what: str) -> memoryview:
        if nbytes > self.remaining:
            raise HmmFormatError(
                f"{self.label} is cut off: {what} needs {nbytes} bytes at byte {self._position}, "
                f"{self.remaining} are left; write the file again"
            )
        begin = self._position
        self._position += nbytes
        return self._data[begin : self._position]

    def unpack(self, fields: struct.Struct, what: str) -> tuple[Any, ...]:
        return fields.unpack(self.take(fields.size, what))

    def u8(self, what: str) -> int:
        return self.take(1, what)[0]

    def u16(self, what: str) -> int:
        return int.from_bytes(self.take(2, what), "little")

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def count(self, limit: int, item_bytes: int, what: str) -> int:
        """Reads a u32 count of items that take at least `item_bytes` each."""
        count = self.u32(f"the number of {what}")
        if count > limit:
            raise HmmFormatError(f"{self.label} says {count} {what}, the limit is {limit}")
        if count * item_bytes > self.remaining:
            raise HmmFormatError(
                f"{self.label} says {count} {what}, which take at least {count * item_bytes} bytes; "
                f"{self.remaining} are left"
            )
        return count

    def ids(self, count: int, what: str) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self.take(4 * count, what))

    def text(self, limit: int, what: str) -> str:
        nbytes = self.u32(f"the length of {what}")
        if nbytes > limit:
            raise HmmFormatError(f"{self.label}: {what} has {nbytes} bytes, the limit is {limit}")
        return decode_text(self.take(nbytes, what), f"{self.label}: {what}")

    def end(self) -> None:
        if self.remaining:
            raise HmmFormatError(f"{self.label} has {self.remaining} bytes after its end")


def decode_text(data: bytes | memoryview, what: str) -> str:
    """Decodes UTF-8 without NUL."""
    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise HmmFormatError(f"{what} is not UTF-8 (byte {error.start})") from None
    if "\0" in text:
        raise HmmFormatError(f"{what} contains a NUL")
    return text
