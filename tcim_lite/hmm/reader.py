"""Reads `.hmm` and `.hmw` (docs/hmm-format.md). Nothing in the file is trusted; csrc/hmm/reader.cpp says the same."""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import HmmFormatError
from . import layout
from .crc32c import crc32c
from .cursor import Cursor, decode_text
from .front import checked_header, padded_text
from .graph import Graph
from .graph_rules import check_weight_values
from .graph_section import decode_graph, decode_split
from .layout import Section, Sibling, WeightEntry
from .parts import Split, check_parts
from .ports import decode_ports
from .weight_table import check_weights, decode_weight_table


@dataclass(frozen=True, slots=True)
class Container:
    """What a file says. The payload stays where it is until `weight_bytes`."""

    kind: str  # "model" or "weights"
    id: bytes
    version: tuple[int, int]
    target: str
    producer: str
    ncore: int
    ndevice: int
    custom_msg: str
    sibling: Sibling | None
    weights: tuple[WeightEntry, ...]
    graphs: tuple[Graph, ...]  # one per device in rank order, none in a .hmw
    split: Split | None  # how the graphs of several devices share inputs and outputs
    sections: tuple[Section, ...]
    label: str
    data: memoryview = field(repr=False)

    @property
    def graph(self) -> Graph | None:
        """The graph, of several that of the first device; None in a `.hmw`."""
        return self.graphs[0] if self.graphs else None

    def weight_bytes(self, entry: WeightEntry) -> memoryview:
        """Returns the packed bytes of a weight of this file.

        Raises:
            ValueError: the weight is external.
        """
        if entry.external:
            file = self.sibling.file if self.sibling else "the sibling"
            raise ValueError(f"{self.label}: weight '{entry.name}' is in {file}, read that file for its bytes")
        return self.data[entry.offset : entry.offset + entry.nbytes]

    def verify(self, sibling: Container | None = None) -> None:
        """Checks the checksum and the hash of every weight, and that a sibling belongs to this file.

        Raises:
            HmmFormatError: the first difference.
        """
        for entry in self.weights:
            if entry.external:
                continue
            data = self.weight_bytes(entry)
            if (crc := crc32c(data)) != entry.crc32c:
                raise HmmFormatError(
                    f"{self.label}: weight '{entry.name}' has CRC-32C {crc:08x}, expected {entry.crc32c:08x}; "
                    "the file is damaged, copy it again"
                )
            digest = hashlib.sha256(layout.hash_prefix(entry.format, entry.dtype, entry.shape))
            digest.update(data)
            if digest.digest() != entry.hash:
                raise HmmFormatError(
                    f"{self.label}: weight '{entry.name}' has SHA-256 {digest.hexdigest()}, expected {entry.hash.hex()}"
                )
        if sibling is not None:
            self._verify_sibling(sibling)

    def _verify_sibling(self, sibling: Container) -> None:
        if self.sibling is None:
            raise ValueError(f"{self.label} has no sibling")
        if sibling.id != self.sibling.id:
            raise HmmFormatError(
                f"{self.label} belongs to a {self.sibling.file} of id {self.sibling.id.hex()}, this one has id "
                f"{sibling.id.hex()}; take both files from one compilation"
            )
        stored = {entry.hash: entry for entry in sibling.weights}
        for entry in self.weights:
            if not entry.external:
                continue
            other = stored.get(entry.hash)
            if other is None:
                raise HmmFormatError(f"{self.label}: weight '{entry.name}' is not in {sibling.label}")
            if replace(other, name=entry.name, external=True, offset=0) != entry:
                raise HmmFormatError(f"{self.label}: weight '{entry.name}' differs from its copy in {sibling.label}")


def read(source: str | os.PathLike[str] | bytes | bytearray | memoryview | mmap.mmap) -> Container:
    """Reads a container from a file (mapped, not copied) or from bytes, in any object with a contiguous buffer.

    Raises:
        HmmFormatError: a missing, foreign, damaged or too new file; each cause has its own message.
    """
    if not isinstance(source, str | os.PathLike):
        return _parse(memoryview(source).cast("B").toreadonly(), "(bytes)")
    path = Path(source)
    if "\0" in str(path):
        raise HmmFormatError(f"{str(path)!r:.200}: a path cannot hold a NUL character; give the path of a .hmm")
    try:
        with open(path, "rb", opener=_open_without_blocking) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise HmmFormatError(f"{path}: is not a regular file; give the path of a .hmm")
            empty = status.st_size == 0
            data = memoryview(b"") if empty else memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise HmmFormatError(f"{path}: cannot be read ({error.strerror or error})") from error
    return _parse(data, str(path))


def _open_without_blocking(path: str, flags: int) -> int:
    """Opening a FIFO nobody writes would hang."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _parse(data: memoryview, label: str) -> Container:
    header = checked_header(data, label)
    minor, ncore, ndevice = header.minor, header.ncore, header.ndevice
    kind = "model" if header.magic == layout.MAGIC_MODEL else "weights"
    target_name = padded_text(header.target, f"{label}: target")
    if target_name != layout.TARGET:
        raise HmmFormatError(f"{label}: compiled for target '{target_name}', expected '{layout.TARGET}'; compile again")
    if ncore < 1 or ndevice < 1:
        raise HmmFormatError(f"{label}: ncore is {ncore} and ndevice is {ndevice}, both must be at least 1")
    if ndevice > layout.MAX_DEVICES:
        raise HmmFormatError(
            f"{label}: ndevice is {ndevice}, expected at most {layout.MAX_DEVICES}; compile for fewer devices"
        )
    producer_name = padded_text(header.producer, f"{label}: producer")
    sections = _sections(data, header.section_count, minor, kind, ndevice, label)
    contents = [(s.kind, data[s.offset : s.offset + s.nbytes]) for s in sections]
    if layout.container_id([content for kind_, content in contents if kind_ != layout.PAYLOAD]) != header.id:
        raise HmmFormatError(f"{label}: the id in the header is not the SHA-256 of the sections; write the file again")

    blobs = dict(contents)
    payload = next((s for s in sections if s.kind == layout.PAYLOAD), None)
    weights = decode_weight_table(blobs[layout.WEIGHT_TABLE], f"{label}: weight_table section")
    check_weights(weights, payload, kind == "model", label)
    custom_msg = blobs.get(layout.CUSTOM_MSG, memoryview(b""))
    if len(custom_msg) > layout.MAX_CUSTOM_MSG_BYTES:
        raise HmmFormatError(f"{label}: custom_msg has {len(custom_msg)} bytes, the limit is 16 MiB")
    message = decode_text(custom_msg, f"{label}: custom_msg")
    sibling = None
    if layout.SIBLING in blobs:
        sibling = _decode_sibling(Cursor(blobs[layout.SIBLING], f"{label}: sibling section"))
    if (sibling is not None) != any(entry.external for entry in weights):
        raise HmmFormatError(f"{label}: there must be a sibling section exactly when a weight is external")
    graphs, split = [], None
    if kind == "model":
        parts = [content for kind_, content in contents if kind_ == layout.GRAPH]
        graphs = [_decode_part(part, rank, ndevice, weights, label) for rank, part in enumerate(parts)]
        if layout.SPLIT in blobs:
            split = decode_split(blobs[layout.SPLIT], f"{label}: split section")
        check_parts(graphs, split, HmmFormatError, label)
        if layout.PORTS in blobs and minor >= 1:
            graphs = decode_ports(blobs[layout.PORTS], f"{label}: ports section", graphs)
    return Container(
        kind, header.id, (header.major, minor), target_name, producer_name, ncore, ndevice, message, sibling,
        tuple(weights), tuple(graphs), split, tuple(sections), label, data,
    )  # fmt: skip


def _decode_part(data: memoryview, rank: int, ndevice: int, weights: Sequence[WeightEntry], label: str) -> Graph:
    if len(data) > layout.MAX_GRAPH_BYTES:
        raise HmmFormatError(f"{label}: the graph has {len(data)} bytes, the limit is 64 MiB")
    what = f"{label}: graph section" + (f" of device {rank}" if ndevice > 1 else "")
    graph = decode_graph(data, what)
    check_weight_values(graph, weights, HmmFormatError, what)
    return graph


def _sections(data: memoryview, count: int, minor: int, kind: str, ndevice: int, label: str) -> list[Section]:
    """Checks the section table (section 3) and returns it without the sections that may be skipped."""
    front_bytes = layout.HEADER_BYTES + count * layout.SECTION_BYTES
    known = layout.SECTION_NAMES if minor >= 1 else layout.SECTION_NAMES.keys() - {layout.PORTS}
    allowed = set(known) if kind == "model" else {layout.WEIGHT_TABLE, layout.PAYLOAD}
    sections: list[Section] = []
    for index in range(count):
        row = layout.SECTION.unpack_from(data, layout.HEADER_BYTES + index * layout.SECTION_BYTES)
        *fields, reserved = row
        section = Section(*fields)
        name = layout.SECTION_NAMES.get(section.kind, f"kind {section.kind}")
        what = f"{label}: section {name}"
        if section.kind not in known and section.flags & layout.SECTION_REQUIRED:
            raise HmmFormatError(f"{what} is required and unknown to this reader; update tcim_lite")
        if section.kind in known and section.kind not in allowed:
            raise HmmFormatError(f"{what} does not belong into a .hmw")
        several = section.kind == layout.GRAPH and ndevice > 1
        if not several and any(section.kind == other.kind for other in sections):
            raise HmmFormatError(f"{what} appears twice")
        if minor <= layout.VERSION[1] and (reserved or section.flags > 1):
            raise HmmFormatError(f"{what} has flags {section.flags} and reserved {reserved}, expected 0 or 1 and 0")
        alignment = layout.PAYLOAD_ALIGNMENT if section.kind == layout.PAYLOAD else layout.ALIGNMENT
        if section.offset % alignment:
            raise HmmFormatError(f"{what} is at offset {section.offset}, expected a multiple of {alignment}")
        if section.offset < front_bytes:
            raise HmmFormatError(f"{what} is at offset {section.offset}, inside the header and table of {front_bytes}")
        if section.nbytes > len(data) or section.offset > len(data) - section.nbytes:
            raise HmmFormatError(
                f"{what}: {section.nbytes} bytes at offset {section.offset} lie outside a file of {len(data)} bytes"
            )
        if section.kind == layout.PAYLOAD and section.crc32c:
            raise HmmFormatError(f"{what} has a CRC-32C of {section.crc32c:08x}, expected 0")
        sections.append(section)
    _check_section_overlap(sections, label)
    for section in sections:
        if section.kind == layout.PAYLOAD:
            continue
        if (got := crc32c(data[section.offset : section.offset + section.nbytes])) != section.crc32c:
            name = layout.SECTION_NAMES.get(section.kind, f"kind {section.kind}")
            raise HmmFormatError(
                f"{label}: section {name} has CRC-32C {got:08x}, expected {section.crc32c:08x}; "
                "the file is damaged, copy it again"
            )
    for required in (layout.GRAPH, layout.WEIGHT_TABLE):
        if required in allowed and all(section.kind != required for section in sections):
            raise HmmFormatError(f"{label}: section {layout.SECTION_NAMES[required]} is missing")
    kinds = [section.kind for section in sections]
    if kind == "model" and (count := kinds.count(layout.GRAPH)) != ndevice:
        raise HmmFormatError(f"{label}: there are {count} graph sections, expected {ndevice}, one for each device")
    return sections


def _check_section_overlap(sections: Sequence[Section], label: str) -> None:
    ordered = sorted(sections, key=lambda section: (section.offset, section.nbytes))
    for first, second in itertools.pairwise(ordered):
        if second.offset < first.offset + first.nbytes:
            raise HmmFormatError(
                f"{label}: sections at offsets {first.offset} ({first.nbytes} bytes) and {second.offset} overlap"
            )


def _decode_sibling(cursor: Cursor) -> Sibling:
    id_ = bytes(cursor.take(32, "the id"))
    file = cursor.text(layout.MAX_NAME_BYTES, "the file name")
    cursor.end()
    if not layout.is_bare_file_name(file):
        raise HmmFormatError(f"{cursor.label}: file name '{file}' is not a bare file name")
    return Sibling(file, id_)
