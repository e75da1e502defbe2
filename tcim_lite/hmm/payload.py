"""What a file being written is made of: its payload, and a temporary name until it is complete."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from . import layout
from .crc32c import crc32c
from .layout import WeightEntry

_CHUNK_BYTES = 16 << 20


class TemporaryFile:
    """A file in the folder of `path` that becomes `path` on commit, so that nobody maps a file being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        with self._named():
            self.file: BinaryIO = open(self._temporary, "xb")  # noqa: SIM115 (closed by commit or discard)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """An error names the file that was asked for."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def commit(self) -> None:
        with self._named():
            self.file.close()
            os.replace(self._temporary, self._path)

    def discard(self) -> None:
        self.file.close()
        self._temporary.unlink(missing_ok=True)


class Payload:
    """Appends weights to a file at multiples of 64, each content once."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._begin = self.end = begin
        self._offsets: dict[bytes, int] = {}  # by hash
        self._names: set[str] = set()

    @property
    def nbytes(self) -> int:
        return self.end - self._begin

    def add(self, name: str, dtype: str, format: str, shape: Sequence[int], data: Any) -> WeightEntry:
        shape = tuple(int(extent) for extent in shape)
        check_weight_name(name, self._names)
        try:
            nbytes = layout.packed_bytes(format, shape, dtype)
        except ValueError as error:
            raise ValueError(f"weight {name!r}: {error}") from None
        offset = layout.align(self.end, layout.ALIGNMENT)
        self._file.seek(offset)
        digest = hashlib.sha256(layout.hash_prefix(format, dtype, shape))
        crc = written = 0
        for chunk in _chunks(data):
            written += len(chunk)
            if written > nbytes:
                break
            digest.update(chunk)
            crc = crc32c(chunk, crc)
            self._file.write(chunk)
        if written != nbytes:
            got = f"more than {nbytes}" if written > nbytes else str(written)
            raise ValueError(f"weight {name!r}: {got} bytes given, {format} {dtype} {list(shape)} takes {nbytes}")
        self._names.add(name)
        stored = self._offsets.setdefault(digest.digest(), offset)
        if stored == offset:
            self.end = offset + nbytes
        else:
            self._file.truncate(self.end)
        return WeightEntry(name, dtype, format, shape, nbytes, digest.digest(), crc, offset=stored)


def check_weight_name(name: str, taken: set[str]) -> None:
    """Raises ValueError for a name that a weight table cannot hold."""
    if not 1 <= len(name.encode()) <= layout.MAX_NAME_BYTES or "\0" in name:
        raise ValueError(f"weight name {name[:60]!r}: expected 1 to {layout.MAX_NAME_BYTES} bytes without NUL")
    if name in taken:
        raise ValueError(f"weight {name!r} is given twice")


def _chunks(data: Any) -> Iterator[memoryview]:
    """The bytes of `data` in pieces that fit the caches of a checksum."""
    if isinstance(data, np.ndarray):
        pieces: Iterable[Any] = (data,)
    else:
        try:
            pieces = (memoryview(data),)
        except TypeError:
            pieces = data
    for piece in pieces:
        if isinstance(piece, np.ndarray):
            piece = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
        view = memoryview(piece)
        view = view.cast("B") if view.nbytes and view.contiguous else memoryview(view.tobytes())
        for begin in range(0, len(view), _CHUNK_BYTES):
            yield view[begin : begin + _CHUNK_BYTES]
