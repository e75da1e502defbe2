"""The weight table (docs/hmm-format.md section 4.1), read and written."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..errors import HmmFormatError
from . import layout
from .cursor import Cursor, decode_text
from .layout import Section, WeightEntry


def decode_weight_table(data: memoryview, label: str) -> list[WeightEntry]:
    """Reads the entries and checks each by itself."""
    cursor = Cursor(data, label)
    count = cursor.u32("the number of weights")
    string_bytes = cursor.u32("the size of the names")
    expected = layout.WEIGHT_TABLE_HEADER.size + count * layout.WEIGHT_BYTES + string_bytes
    if count > layout.MAX_WEIGHTS:
        raise HmmFormatError(f"{label} says {count} weights, the limit is {layout.MAX_WEIGHTS}")
    if expected != len(data):
        raise HmmFormatError(
            f"{label} has {len(data)} bytes; {count} weights and {string_bytes} bytes of names take {expected}"
        )
    names = data[len(data) - string_bytes :]
    return [_decode_entry(cursor, index, names, label) for index in range(count)]


def _decode_entry(cursor: Cursor, index: int, names: memoryview, label: str) -> WeightEntry:
    (name_offset, name_bytes, dtype, format_, rank, external, crc, *rest) = cursor.unpack(layout.WEIGHT, "a weight")
    extents, (offset, nbytes, hash_) = rest[:4], rest[4:]
    if not 1 <= name_bytes <= layout.MAX_NAME_BYTES or name_offset + name_bytes > len(names):
        raise HmmFormatError(
            f"{label}: the name of weight {index} is {name_bytes} bytes at {name_offset} of {len(names)}; "
            f"expected 1 to {layout.MAX_NAME_BYTES} bytes inside them"
        )
    name = decode_text(names[name_offset : name_offset + name_bytes], f"{label}: the name of weight {index}")
    what = f"{label}: weight '{name}'"
    if dtype not in layout.DTYPE_NAMES:
        raise HmmFormatError(f"{what} has dtype {dtype}, known are 1 to 8")
    if format_ not in layout.FORMAT_NAMES:
        raise HmmFormatError(f"{what} has format {format_}, known are 0 to 4")
    if not 1 <= rank <= layout.MAX_WEIGHT_RANK:
        raise HmmFormatError(f"{what} has rank {rank}, expected 1 to {layout.MAX_WEIGHT_RANK}")
    if external > 1:
        raise HmmFormatError(f"{what} has external {external}, expected 0 or 1")
    if any(extents[rank:]):
        raise HmmFormatError(f"{what} has rank {rank} and extents {extents}, those beyond the rank must be 0")
    shape = tuple(extents[:rank])
    names_of = (layout.DTYPE_NAMES[dtype], layout.FORMAT_NAMES[format_])
    try:
        expected = layout.packed_bytes(names_of[1], shape, names_of[0])
    except ValueError as error:
        raise HmmFormatError(f"{what}: {error}") from None
    if nbytes != expected:
        raise HmmFormatError(f"{what} has {nbytes} bytes; {names_of[1]} {names_of[0]} {list(shape)} takes {expected}")
    return WeightEntry(name, *names_of, shape, nbytes, hash_, crc, bool(external), offset)


def check_weights(weights: Sequence[WeightEntry], payload: Section | None, is_model: bool, label: str) -> None:
    """Checks names and ranges of all entries against each other and the payload."""
    names: set[str] = set()
    begin, end = (payload.offset, payload.offset + payload.nbytes) if payload else (0, 0)
    for entry in weights:
        what = f"{label}: weight '{entry.name}'"
        if entry.name in names:
            raise HmmFormatError(f"{what} appears twice")
        names.add(entry.name)
        if entry.external:
            if not is_model:
                raise HmmFormatError(f"{what} is external, which a .hmw cannot have")
            if entry.offset:
                raise HmmFormatError(f"{what} is external and has offset {entry.offset}, expected 0")
            continue
        if entry.offset % layout.ALIGNMENT:
            raise HmmFormatError(f"{what} is at offset {entry.offset}, expected a multiple of {layout.ALIGNMENT}")
        if entry.offset < begin or entry.nbytes > end or entry.offset > end - entry.nbytes:
            raise HmmFormatError(
                f"{what}: {entry.nbytes} bytes at offset {entry.offset} lie outside the payload ({begin} to {end})"
            )
    stored = sorted((entry for entry in weights if not entry.external), key=lambda entry: (entry.offset, entry.nbytes))
    for first, second in itertools.pairwise(stored):
        if second.offset >= first.offset + first.nbytes:
            continue
        if (first.hash, first.offset, first.nbytes) != (second.hash, second.offset, second.nbytes):
            raise HmmFormatError(f"{label}: weights '{first.name}' and '{second.name}' overlap and are not the same")


def encode_weight_table(entries: Sequence[WeightEntry]) -> bytes:
    """Returns the section of these entries."""
    rows, names = [], []
    name_offset = 0
    for entry in entries:
        name = entry.name.encode()
        extents = (*entry.shape, 0, 0, 0, 0)[:4]
        codes = (layout.DTYPES[entry.dtype], layout.FORMATS[entry.format], len(entry.shape), int(entry.external))
        rows.append(
            layout.WEIGHT.pack(
                name_offset, len(name), *codes, entry.crc32c, *extents, entry.offset, entry.nbytes, entry.hash
            )
        )
        names.append(name)
        name_offset += len(name)
    return layout.WEIGHT_TABLE_HEADER.pack(len(entries), name_offset) + b"".join(rows) + b"".join(names)
