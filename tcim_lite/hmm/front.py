"""The front of a container: its header and section table (docs/hmm-format.md, sections 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import HmmFormatError
from . import layout
from .crc32c import crc32c
from .cursor import decode_text
from .foreign import describe_foreign


class Header(NamedTuple):
    """The fields of a header, in the order of the file."""

    magic: bytes
    major: int
    minor: int
    header_bytes: int
    file_bytes: int
    section_count: int
    ncore: int
    id: bytes
    target: bytes
    producer: bytes
    ndevice: int
    crc32c: int
    section_table: int


def checked_header(data: memoryview, label: str) -> Header:
    """Reads the header, and checks it and the sum over it and the section table."""
    if not len(data):
        raise HmmFormatError(f"{label}: the file is empty (interrupted copy or download?); write or copy it again")
    if bytes(data[:8]) not in (layout.MAGIC_MODEL, layout.MAGIC_WEIGHTS):
        raise HmmFormatError(f"{label}: not a .hmm of this project: {describe_foreign(data)}")
    if len(data) < layout.HEADER_BYTES:
        raise HmmFormatError(f"{label}: {len(data)} bytes, the header alone takes 128; copy the file again")
    header = Header._make(layout.HEADER.unpack_from(data))
    if header.major != layout.VERSION[0]:
        raise HmmFormatError(
            f"{label}: format version {header.major}.{header.minor}, this reader knows {layout.VERSION[0]}.x; "
            + ("update tcim_lite" if header.major > layout.VERSION[0] else "compile the model again")
        )
    if header.header_bytes != layout.HEADER_BYTES:
        raise HmmFormatError(f"{label}: header_bytes is {header.header_bytes}, expected 128")
    if header.file_bytes != len(data):
        hint = "copy it again" if header.file_bytes > len(data) else "something was appended"
        raise HmmFormatError(f"{label}: {len(data)} bytes are present, the header says {header.file_bytes}; {hint}")
    if not 1 <= header.section_count <= layout.MAX_SECTIONS:
        raise HmmFormatError(f"{label}: section_count is {header.section_count}, expected 1 to {layout.MAX_SECTIONS}")
    if header.section_table != layout.HEADER_BYTES:
        raise HmmFormatError(f"{label}: section_table_offset is {header.section_table}, expected 128")
    front_bytes = layout.HEADER_BYTES + header.section_count * layout.SECTION_BYTES
    if front_bytes > len(data):
        raise HmmFormatError(f"{label}: a table of {header.section_count} sections does not fit {len(data)} bytes")
    front = bytearray(data[:front_bytes])
    front[layout.HEADER_CRC_OFFSET : layout.HEADER_CRC_OFFSET + 4] = bytes(4)
    if (got := crc32c(front)) != header.crc32c:
        raise HmmFormatError(
            f"{label}: header and section table have CRC-32C {got:08x}, expected {header.crc32c:08x}; "
            "the file is damaged, copy it again"
        )
    return header


def padded_text(data: bytes, what: str) -> str:
    text, _, padding = data.partition(b"\0")
    if padding.strip(b"\0") or not text or len(text) == len(data):
        raise HmmFormatError(f"{what} is {data!r}, expected text padded with NUL")
    return decode_text(text, what)


def encode_front(
    magic: bytes,
    version: tuple[int, int],
    file_bytes: int,
    sections: Sequence[layout.Section],
    id_: bytes,
    ncore: int,
    ndevice: int,
    producer: str | None,
) -> bytes:
    """The header and the section table."""
    if producer is None:
        from tcim_lite import __version__

        producer = f"tcim_lite {__version__}"
    name = producer.encode()
    if len(name) >= layout.PRODUCER_BYTES or b"\0" in name:
        raise ValueError(f"producer {producer!r}: expected at most {layout.PRODUCER_BYTES - 1} bytes without NUL")
    if not 1 <= ncore <= 0xFFFFFFFF:
        raise ValueError(f"ncore={ncore} must be at least 1")
    table = b"".join(layout.SECTION.pack(s.kind, s.flags, s.offset, s.nbytes, s.crc32c, 0) for s in sections)
    fields = [magic, *version, layout.HEADER_BYTES, file_bytes, len(sections), ncore, id_]
    fields += [layout.TARGET.encode(), name, ndevice]
    crc = crc32c(layout.HEADER.pack(*fields, 0, layout.HEADER_BYTES) + table)
    return layout.HEADER.pack(*fields, crc, layout.HEADER_BYTES) + table
