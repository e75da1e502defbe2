"""Recording files: chunks of JSON lines and tensor data (docs/recording.md), and their reader; writer.py writes them.

numpy and the standard library only.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .compression import NONE, most_plain_bytes, unpacked
from .fingerprint import fingerprint

__all__ = ["MAJOR", "MINOR", "NO_END", "Recording", "RecordingError"]

MAGIC, MAJOR, MINOR = b"TCIMREC\0", 1, 1
HEADER = struct.Struct("<8sHHI")
CHUNK = struct.Struct("<IIQQ")  # kind, compression, stored bytes, bytes before compression
CHECK = struct.Struct("<Q")  # fingerprint of the four and of what is stored
META, CALLS, DATA, END = 1, 2, 3, 4
_KINDS = {META: "meta", CALLS: "calls", DATA: "data", END: "end"}
_MAX_TEXT = 1 << 26  # of a chunk of JSON
_MAX_ALL_TEXT = 1 << 30
_MAX_DATA = 1 << 34
_MAX_DEPTH = 32
NO_END = "the process was killed, ended by os._exit as children of multiprocessing do, or still runs"


class RecordingError(ValueError):
    """A file that is no recording, or a damaged one; or a recording that cannot do what was asked."""


class Recording:
    """A recording that was read: `meta`, `records` in file order, and the data by fingerprint.

    Attributes:
        path: the file.
        version: (major, minor) of the format.
        meta: facts about the run.
        records: calls and rounds, each a dict as docs/recording.md, section 4, has it; values are not checked yet.
        complete: whether the file has its end; else NO_END says why, and the last record may be missing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads all records; data only when they are asked for.

        Raises:
            RecordingError: no recording, another major version, or damage; the text says where.
        """
        self.path = Path(path)
        self.meta: dict[str, Any] = {}
        self.records: list[dict[str, Any]] = []
        self.complete = False
        self._data: dict[int, tuple[int, int]] = {}  # fingerprint: offset of the chunk, bytes
        if not self.path.is_file():
            raise RecordingError(f"{path}: there is no such file, or it is no regular file")
        with self.path.open("rb") as file:
            self.version = self._read_header(file)
            self._read_chunks(file)
        if not self.meta:
            raise RecordingError(f"{path}: the recording has no meta chunk; it was cut off at its beginning")

    def _read_header(self, file: BinaryIO) -> tuple[int, int]:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size or not head.startswith(MAGIC):
            raise RecordingError(
                f"{self.path}: no recording: it begins with {head[:8]!r}, expected {MAGIC!r}; "
                "TCIM_LITE_LAYERS=record:FILE writes one"
            )
        _, major, minor, _ = HEADER.unpack(head)
        if major != MAJOR:
            raise RecordingError(f"{self.path}: version {major}.{minor} of the format; this reader knows {MAJOR}.x")
        return major, minor

    def _read_chunks(self, file: BinaryIO) -> None:
        size, text_bytes = os.fstat(file.fileno()).st_size, 0
        while (at := file.tell()) < size:
            if self.complete:
                raise RecordingError(f"{self.path}: {size - at} bytes after the end chunk, at {at}")
            head = self._read_chunk_head(file, at)
            if head is None or size - file.tell() < head[2]:
                return  # cut off
            kind, _, stored, _ = head
            if kind == DATA:
                self._index_data(file, at, head)
                file.seek(at + CHUNK.size + CHECK.size + stored)
            elif kind in _KINDS:
                content = self._content(file, at, head)
                text_bytes += len(content)
                if text_bytes > _MAX_ALL_TEXT:
                    raise RecordingError(f"{self.path}: more than {_MAX_ALL_TEXT} bytes of records")
                self._read_text(kind, content, at)
            else:  # of a later minor version
                file.seek(stored, os.SEEK_CUR)

    def _read_chunk_head(self, file: BinaryIO, at: int) -> tuple[int, int, int, int] | None:
        raw = file.read(CHUNK.size + CHECK.size)
        if len(raw) < CHUNK.size + CHECK.size:
            return None
        kind, compression, stored, plain = CHUNK.unpack_from(raw)
        where = f"{self.path}: {_KINDS.get(kind, f'kind {kind}')} chunk at {at}"
        limit = _MAX_DATA if kind == DATA else _MAX_TEXT
        if kind in _KINDS:
            try:
                most = most_plain_bytes(compression, stored)
            except ValueError as error:
                raise RecordingError(f"{where}: {error}") from None
            if plain > limit or (compression == NONE and plain != stored):
                raise RecordingError(f"{where}: {stored} bytes that stand for {plain}; at most {limit} are read")
            if plain > most:
                raise RecordingError(f"{where}: {stored} bytes cannot stand for {plain}")
        return kind, compression, stored, plain

    def _content(self, file: BinaryIO, at: int, head: tuple[int, int, int, int]) -> bytes:
        """Of the chunk at `at`; the file stands behind its head or anywhere."""
        kind, compression, stored, plain = head
        file.seek(at + CHUNK.size)
        (check,) = CHECK.unpack(file.read(CHECK.size))
        content = file.read(stored)
        where = f"{self.path}: {_KINDS[kind]} chunk at {at}"
        if len(content) != stored or fingerprint(CHUNK.pack(*head) + content) != check:
            raise RecordingError(f"{where}: the checksum does not match; the file is damaged")
        if compression == NONE:
            return content
        first = content[: CHECK.size if kind == DATA else 0]
        try:
            return first + unpacked(content[len(first) :], compression, plain - len(first))
        except ValueError as error:
            raise RecordingError(f"{where}: {error}") from None

    def _index_data(self, file: BinaryIO, at: int, head: tuple[int, int, int, int]) -> None:
        _, _, stored, plain = head
        if min(stored, plain) < CHECK.size:
            raise RecordingError(f"{self.path}: data chunk at {at}: {stored} bytes have no fingerprint")
        self._data.setdefault(CHECK.unpack(file.read(CHECK.size))[0], (at, plain - CHECK.size))

    def _read_text(self, kind: int, content: bytes, at: int) -> None:
        where = f"{self.path}: {_KINDS[kind]} chunk at {at}"
        lines = content.split(b"\n") if kind == CALLS else [content]
        for line in lines:
            if not line.strip():
                continue
            try:
                made = json.loads(line.decode("utf-8", "surrogateescape"))
            except (ValueError, RecursionError) as error:
                raise RecordingError(f"{where}: no JSON: {error}") from None
            if not isinstance(made, dict) or _depth(made) > _MAX_DEPTH:
                raise RecordingError(f"{where}: expected a JSON object of at most {_MAX_DEPTH} levels")
            if kind == CALLS:
                self.records.append(made)
            elif kind == META and not self.meta:
                self.meta = made
            elif kind == END:
                self._end(made, where)

    def _end(self, end: dict[str, Any], where: str) -> None:
        if end.get("records") != len(self.records) or end.get("data") != len(self._data):
            raise RecordingError(
                f"{where}: it counts {end.get('records')!r:.40} records and {end.get('data')!r:.40} data, "
                f"the file has {len(self.records)} and {len(self._data)}; chunks are missing"
            )
        self.complete = True

    def has_data(self, hashed: int) -> bool:
        """Whether the bytes of this fingerprint are stored."""
        return hashed in self._data

    @property
    def data_bytes(self) -> int:
        """Bytes of all stored data, before compression."""
        return sum(nbytes for _, nbytes in self._data.values())

    def data_hashes(self) -> Iterator[int]:
        """The fingerprints of what is stored."""
        return iter(self._data)

    def data(self, hashed: int) -> bytes:
        """The bytes of a fingerprint.

        Raises:
            RecordingError: they are not stored, or damaged.
        """
        if hashed not in self._data:
            raise RecordingError(f"{self.path}: the data with fingerprint {hashed:016x} were not recorded")
        at, _ = self._data[hashed]
        with self.path.open("rb") as file:
            file.seek(at)
            head = self._read_chunk_head(file, at)
            if head is None or head[0] != DATA:
                raise RecordingError(f"{self.path}: the data chunk at {at} is gone; the file has changed")
            content = self._content(file, at, head)[CHECK.size :]
        if fingerprint(content) != hashed:
            raise RecordingError(f"{self.path}: the data at {at} do not have their fingerprint; the file is damaged")
        return content


def _depth(value: Any) -> int:
    """Levels of nesting; stops counting beyond the limit."""
    level, depth = [value], 0
    while level and depth <= _MAX_DEPTH:
        depth += 1
        level = [
            item
            for each in level
            if isinstance(each, (dict, list))
            for item in (each.values() if isinstance(each, dict) else each)
            if isinstance(item, (dict, list))
        ]
    return depth
