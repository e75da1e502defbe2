"""Writes recording files (docs/recording.md); container.py says what they are made of."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from .compression import NONE, ZLIB, ZSTD, has_zstd, packed
from .container import CALLS, CHECK, CHUNK, DATA, END, HEADER, MAGIC, MAJOR, META, MINOR, RecordingError
from .fingerprint import fingerprint
from .own_file import close_own, open_own

__all__ = ["RecordingWriter"]

_PACKED_RECORDS = 1 << 20  # bytes of records in a chunk of a packed file


class RecordingWriter:
    """Writes a recording, chunk by chunk: what was written stays readable if the process is killed. Thread-safe.

    Data are stored once for each content. The child of a fork writes nothing. Use it as a context manager, or call
    `close`.
    """

    def __init__(self, path: str | os.PathLike[str], meta: dict[str, Any], *, pack: bool = False) -> None:
        """Begins a file; one of the name is replaced.

        Args:
            path: the file.
            meta: facts about the run, as JSON takes them.
            pack: for a file that is written at once: many records in a chunk, and zstd. Otherwise each record is a
                chunk, and data are stored with zlib where that saves an eighth at least.

        Raises:
            RecordingError: `pack`, and this Python has no zstd; another recording is being written into the file.
        """
        if pack and not has_zstd():
            raise RecordingError("packing takes zstd, which Python has from 3.14 on; pip install backports.zstd")
        file = open_own(path)
        if file is None:
            raise RecordingError(f"{path}: another recording is written into this file; end that, or name another file")
        self._file = file
        self._process = os.getpid()
        self._lock = threading.Lock()  # which another thread may hold at a fork
        self._pack = pack
        self._lines: list[bytes] = []
        self._line_bytes = 0
        self._stored: set[int] = set()
        self._records = 0
        self._write(HEADER.pack(MAGIC, MAJOR, MINOR if pack else 0, 0))
        self._chunk(META, _json(meta))

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _is_child(self) -> bool:
        """Whether this is the writer's copy in the child of a fork."""
        return os.getpid() != self._process

    def add_record(self, record: dict[str, Any]) -> None:
        """One call or round."""
        if self._is_child:
            return
        line = _json(record) + b"\n"
        with self._lock:
            if not self._file.closed:
                self._records += 1
                self._lines.append(line)
                self._line_bytes += len(line)
                if not self._pack or self._line_bytes >= _PACKED_RECORDS:
                    self._flush_records()

    def add_data(self, content: bytes, hashed: int) -> None:
        """The bytes of a tensor, of which `hashed` is the fingerprint."""
        if self._is_child:
            return
        with self._lock:
            if hashed not in self._stored and not self._file.closed:
                self._stored.add(hashed)
                self._chunk(DATA, content, CHECK.pack(hashed))

    def _flush_records(self) -> None:
        if self._lines:
            self._chunk(CALLS, b"".join(self._lines))
            self._lines, self._line_bytes = [], 0

    def close(self, *, complete: bool = True) -> None:
        """Ends the file; may be called again. Without `complete` it looks like that of a killed process."""
        if self._is_child:
            self._file.close()
            return
        with self._lock:
            if not self._file.closed:
                self._flush_records()
                if complete:
                    self._chunk(END, _json({"records": self._records, "data": len(self._stored)}))
                close_own(self._file)

    def _chunk(self, kind: int, content: bytes, first: bytes = b"") -> None:
        """`first` is part of the content that is never compressed."""
        wanted = ZSTD if self._pack else ZLIB if kind == DATA else NONE
        compression, stored = packed(content, wanted)
        head = CHUNK.pack(kind, compression, len(first) + len(stored), len(first) + len(content))
        self._write(b"".join((head, CHECK.pack(fingerprint(head + first + stored)), first, stored)))

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:  # the system may take a part
            left = left[self._file.write(left) :]


_encode = json.JSONEncoder(separators=(",", ":")).encode


def _json(value: dict[str, Any]) -> bytes:
    return _encode(value).encode()
