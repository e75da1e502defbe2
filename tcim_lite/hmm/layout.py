"""The bytes of `.hmm` and `.hmw`. Section numbers refer to docs/hmm-format.md, the only specification."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from .weight_format import BLOCK_OUTPUTS, GROUP, LAYOUTS

# Section 1: limits.
MAX_SECTIONS = 64
MAX_DEVICES = 32
MAX_WEIGHTS = 65_536
MAX_VALUES = 1 << 16
MAX_OPS = 1 << 16
MAX_ATTRIBUTES = 64
MAX_RANK = 8
MAX_WEIGHT_RANK = 4
MAX_EXTENT = 1 << 40
MAX_TENSOR_BYTES = 1 << 48
MAX_NAME_BYTES = 1024
MAX_CUSTOM_MSG_BYTES = 16 << 20
MAX_GRAPH_BYTES = 64 << 20
MAX_ALIASES = 16

# Section 2: the header.
MAGIC_MODEL = b"TCIMHMM\0"
MAGIC_WEIGHTS = b"TCIMHMW\0"
VERSION = (1, 4)
MINOR_OF_PORTS, MINOR_OF_EXPERTS = 1, 2  # that have the ports section, and packed weights [E, N, K], first
HEADER = struct.Struct("<8sHHIQII32s16s32sIIQ")
HEADER_BYTES = 128
HEADER_CRC_OFFSET = 116
TARGET = "xh2"
PRODUCER_BYTES = 32

# Section 3: the section table.
SECTION = struct.Struct("<IIQQII")
SECTION_BYTES = 32
SECTION_REQUIRED = 1
GRAPH, CUSTOM_MSG, WEIGHT_TABLE, PAYLOAD, SIBLING, SPLIT, PORTS = 1, 2, 3, 4, 5, 6, 7
SECTION_NAMES = {
    1: "graph", 2: "custom_msg", 3: "weight_table", 4: "payload", 5: "sibling", 6: "split", 7: "ports",
}  # fmt: skip
ALIGNMENT = 64
PAYLOAD_ALIGNMENT = 4096

# Section 4.1: the weight table.
WEIGHT_TABLE_HEADER = struct.Struct("<II")
WEIGHT = struct.Struct("<IIBBBBI4QQQ32s")
WEIGHT_BYTES = 96

# Section 4.3, and the size of an element.
DTYPES = {"int8": 1, "uint8": 2, "int16": 3, "uint16": 4, "int32": 5, "uint32": 6, "float16": 7, "float32": 8}
DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
ITEM_BYTES = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "float16": 2, "float32": 4,
}  # fmt: skip

# Section 6.
FORMATS = {"dense": 0} | {name: packed.code for name, packed in LAYOUTS.items()}
FORMAT_NAMES = {code: name for name, code in FORMATS.items()}

# Section 5.
VALUE_KINDS = {"input": 0, "state": 1, "weight": 2, "intermediate": 3}
VALUE_KIND_NAMES = {code: name for name, code in VALUE_KINDS.items()}
NO_VALUE = 0xFFFFFFFF

assert HEADER.size == HEADER_BYTES
assert SECTION.size == SECTION_BYTES
assert WEIGHT.size == WEIGHT_BYTES


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """One row of a weight table (section 4.1)."""

    name: str
    dtype: str
    format: str
    shape: tuple[int, ...]  # logical: [N, K] of a packed Linear weight, [E, N, K] of experts
    nbytes: int  # of the packed bytes
    hash: bytes  # SHA-256 of format, dtype, shape and packed bytes
    crc32c: int  # of the packed bytes
    external: bool = False  # in the sibling .hmw, found there by hash
    offset: int = 0  # from the start of the container; 0 when external


@dataclass(frozen=True, slots=True)
class Sibling:
    """The `.hmw` that holds a model's external weights (section 4.2)."""

    file: str  # a bare file name in the folder of the .hmm
    id: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """One row of the section table (section 3)."""

    kind: int
    flags: int
    offset: int
    nbytes: int
    crc32c: int


def align(offset: int, alignment: int) -> int:
    """Returns the first multiple of `alignment` at or after `offset`."""
    return -(-offset // alignment) * alignment


def packed_bytes(format: str, shape: Sequence[int], dtype: str) -> int:
    """Returns the size of a weight's stored bytes (section 6).

    Raises:
        ValueError: an unknown dtype or format, or a shape that the format cannot hold.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is not one of {', '.join(FORMATS)}")
    if not 1 <= len(shape) <= MAX_WEIGHT_RANK:
        raise ValueError(f"shape {list(shape)} has rank {len(shape)}, expected 1 to {MAX_WEIGHT_RANK}")
    if any(not 1 <= extent <= MAX_EXTENT for extent in shape):
        raise ValueError(f"shape {list(shape)} has an extent outside 1 to 2^40")
    if format == "dense":
        nbytes = math.prod(shape) * ITEM_BYTES[dtype]
    else:
        layout = LAYOUTS[format]
        if dtype != layout.dtype:
            raise ValueError(f"format {format} has dtype {layout.dtype}, got {dtype}")
        if len(shape) not in (2, 3):
            raise ValueError(f"format {format} has a shape [N, K] or [E, N, K], got {list(shape)}")
        *experts, outputs, inputs = shape
        if layout.scale_inputs and inputs % GROUP:
            raise ValueError(f"format {format} needs K to be a multiple of {GROUP}, got shape {list(shape)}")
        nbytes = math.prod(experts) * -(-outputs // BLOCK_OUTPUTS) * layout.block_bytes(inputs)
    if nbytes > MAX_TENSOR_BYTES:
        raise ValueError(f"shape {list(shape)} takes {nbytes} bytes, the limit is 2^48")
    return nbytes


def hash_prefix(format: str, dtype: str, shape: Sequence[int]) -> bytes:
    """Returns what a weight's hash covers before the packed bytes (section 4.1, field hash)."""
    return struct.pack(f"<BBBB{len(shape)}Q", FORMATS[format], DTYPES[dtype], len(shape), 0, *shape)


def container_id(sections: Sequence[bytes | memoryview]) -> bytes:
    """Returns the id of a container from its sections but the payload, in section-table order (section 2)."""
    digest = hashlib.sha256()
    for section in sections:
        digest.update(section)
    return digest.digest()


def is_bare_file_name(name: str) -> bool:
    """Says whether `name` can name a sibling (section 4.2)."""
    return name not in ("", ".", "..") and not any(char in name for char in "/\\\0")
