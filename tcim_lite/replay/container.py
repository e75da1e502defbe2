"""Recording files: chunks of JSON lines and tensor data (docs/recording.md). numpy and the standard library only."""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from .compression import NONE, ZLIB, ZSTD, has_zstd, most_plain_bytes, packed, unpacked
from .fingerprint import fingerprint
from .own_file import close_own, open_own

__all__ = ["MAJOR", "MINOR", "Recording", "RecordingError", "RecordingWriter"]

MAGIC, MAJOR, MINOR = b"TCIMREC\0", 1, 1
_HEADER = struct.Struct("<8sHHI")
_CHUNK = struct.Struct("<IIQQ")  # kind, compression, stored bytes, bytes before compression
_CHECK = struct.Struct("<Q")  # fingerprint of the four and of what is stored
META, CALLS, DATA, END = 1, 2, 3, 4
_KINDS = {META: "meta", CALLS: "calls", DATA: "data", END: "end"}
_MAX_TEXT = 1 << 26  # of a chunk of JSON
_MAX_ALL_TEXT = 1 << 30
_MAX_DATA = 1 << 34
_MAX_DEPTH = 32
_PACKED_RECORDS = 1 << 20  # bytes of records in a chunk of a packed file


class RecordingError(ValueError):
    """A file that is no recording, or a damaged one; or a recording that cannot do what was asked."""


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
        self._write(_HEADER.pack(MAGIC, MAJOR, MINOR if pack else 0, 0))
        self._chunk(META, _json(meta))

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                self._chunk(DATA, content, _CHECK.pack(hashed))

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
        head = _CHUNK.pack(kind, compression, len(first) + len(stored), len(first) + len(content))
        self._write(b"".join((head, _CHECK.pack(fingerprint(head + first + stored)), first, stored)))

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:  # the system may take a part
            left = left[self._file.write(left) :]


class Recording:
    """A recording that was read: `meta`, `records` in file order, and the data by fingerprint.

    Attributes:
        path: the file.
        version: (major, minor) of the format.
        meta: facts about the run.
        records: calls and rounds, each a dict as docs/recording.md, section 4, has it; values are not checked yet.
        complete: whether the file has its end; else the process was killed, and the last record may be missing.
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
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or not head.startswith(MAGIC):
            raise RecordingError(
                f"{self.path}: no recording: it begins with {head[:8]!r}, expected {MAGIC!r}; "
                "TCIM_LITE_LAYERS=record:FILE writes one"
            )
        _, major, minor, _ = _HEADER.unpack(head)
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
                file.seek(at + _CHUNK.size + _CHECK.size + stored)
            elif kind in _KINDS:
                content = self._content(file, at, head)
                text_bytes += len(content)
                if text_bytes > _MAX_ALL_TEXT:
                    raise RecordingError(f"{self.path}: more than {_MAX_ALL_TEXT} bytes of records")
                self._read_text(kind, content, at)
            else:  # of a later minor version
                file.seek(stored, os.SEEK_CUR)

    def _read_chunk_head(self, file: BinaryIO, at: int) -> tuple[int, int, int, int] | None:
        raw = file.read(_CHUNK.size + _CHECK.size)
        if len(raw) < _CHUNK.size + _CHECK.size:
            return None
        kind, compression, stored, plain = _CHUNK.unpack_from(raw)
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
        file.seek(at + _CHUNK.size)
        (check,) = _CHECK.unpack(file.read(_CHECK.size))
        content = file.read(stored)
        where = f"{self.path}: {_KINDS[kind]} chunk at {at}"
        if len(content) != stored or fingerprint(_CHUNK.pack(*head) + content) != check:
            raise RecordingError(f"{where}: the checksum does not match; the file is damaged")
        if compression == NONE:
            return content
        first = content[: _CHECK.size if kind == DATA else 0]
        try:
            return first + unpacked(content[len(first) :], compression, plain - len(first))
        except ValueError as error:
            raise RecordingError(f"{where}: {error}") from None

    def _index_data(self, file: BinaryIO, at: int, head: tuple[int, int, int, int]) -> None:
        _, _, stored, plain = head
        if min(stored, plain) < _CHECK.size:
            raise RecordingError(f"{self.path}: data chunk at {at}: {stored} bytes have no fingerprint")
        self._data.setdefault(_CHECK.unpack(file.read(_CHECK.size))[0], (at, plain - _CHECK.size))

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
            content = self._content(file, at, head)[_CHECK.size :]
        if fingerprint(content) != hashed:
            raise RecordingError(f"{self.path}: the data at {at} do not have their fingerprint; the file is damaged")
        return content


_encode = json.JSONEncoder(separators=(",", ":")).encode


def _json(value: dict[str, Any]) -> bytes:
    return _encode(value).encode()


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
