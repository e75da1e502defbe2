"""Builds `.hmm` and `.hmw` files from bytes, right or wrong in every field (docs/hmm-format.md)."""

from __future__ import annotations

import dataclasses
import struct

from tcim_lite.hmm import layout
from tcim_lite.hmm.crc32c import crc32c

NONE = 0xFFFFFFFF


@dataclasses.dataclass
class Part:
    """A section; what is None is filled in correctly."""

    kind: int
    data: bytes
    flags: int = 1
    offset: int | None = None
    nbytes: int | None = None
    crc: int | None = None
    reserved: int = 0


def container(
    parts: list[Part], *, magic=b"TCIMHMM\0", version=(1, 1), header_bytes=128, extra_bytes=0, count=None, ncore=1,
    ndevice=1, id_=None, target=b"xh2", producer=b"test", crc=None, table_offset=128, tail=b"",
) -> bytes:  # fmt: skip
    end = 128 + 32 * len(parts)
    rows, body = [], bytearray(end)
    for part in parts:
        begin = layout.align(len(body), 4096 if part.kind == layout.PAYLOAD else 64)
        body += bytes(begin - len(body)) + part.data
        section_crc = 0 if part.kind == layout.PAYLOAD else crc32c(part.data)
        rows.append((
            part.kind, part.flags, begin if part.offset is None else part.offset,
            len(part.data) if part.nbytes is None else part.nbytes, section_crc if part.crc is None else part.crc,
            part.reserved,
        ))  # fmt: skip
    if id_ is None:
        id_ = layout.container_id([part.data for part in parts if part.kind != layout.PAYLOAD])
    table = b"".join(layout.SECTION.pack(*row) for row in rows)
    fields = [magic, *version, header_bytes, len(body) + extra_bytes, len(parts) if count is None else count, ncore]
    fields += [id_, target, producer, ndevice]
    if crc is None:
        crc = crc32c(layout.HEADER.pack(*fields, 0, table_offset) + table)
    body[: 128 + len(table)] = layout.HEADER.pack(*fields, crc, table_offset) + table
    return bytes(body) + tail


def text(string: str | bytes) -> bytes:
    data = string.encode() if isinstance(string, str) else string
    return struct.pack("<I", len(data)) + data


def value(name="v", kind=0, dtype=8, format=0, shape=(1, 1), weight=NONE) -> bytes:
    return text(name) + struct.pack(f"<BBBB{len(shape)}QI", kind, dtype, format, len(shape), *shape, weight)


def op(kind="Add", inputs=(0, 0), outputs=(1,), attributes=(), version=1) -> bytes:
    head = text(kind) + struct.pack("<HHII", version, len(attributes), len(inputs), len(outputs))
    return head + struct.pack(f"<{len(inputs) + len(outputs)}I", *inputs, *outputs) + b"".join(attributes)


X, Y, SUM = value("x"), value("y", kind=3), op()


def graph(values=(X, Y), ops=(SUM,), inputs=(0,), outputs=(1,), live_rows=NONE, name="g", tail=b"") -> bytes:
    data = text(name) + struct.pack("<II", live_rows, len(values)) + b"".join(values)
    data += struct.pack("<I", len(ops)) + b"".join(ops)
    for ids in (inputs, outputs):
        data += struct.pack(f"<I{len(ids)}I", len(ids), *ids)
    return data + tail


def weight(name="w", **fields) -> tuple[bytes, dict]:
    return name.encode() if isinstance(name, str) else name, fields


def weights(*entries: tuple[bytes, dict], count=None, string_bytes=None, tail=b"") -> bytes:
    """A table of float32 [4] weights at the begin of the payload, but for what the entries say."""
    rows, names = b"", b""
    for name, fields in entries:
        row = {
            "name_offset": len(names), "name_bytes": len(name), "dtype": 8, "format": 0, "rank": 1, "external": 0,
            "crc": 0, "extents": (4, 0, 0, 0), "offset": 4096, "bytes": 16, "hash": name[:1] * 32, **fields,
        }  # fmt: skip
        codes = [row[key] for key in ("name_offset", "name_bytes", "dtype", "format", "rank", "external", "crc")]
        rows += layout.WEIGHT.pack(*codes, *row["extents"], row["offset"], row["bytes"], row["hash"])
        names += name
    sizes = (len(entries) if count is None else count, len(names) if string_bytes is None else string_bytes)
    return struct.pack("<II", *sizes) + rows + names + tail


G, W = Part(1, graph()), Part(3, weights())
PAYLOAD = Part(4, bytes(64))


def with_graph(*args, **kwargs) -> bytes:
    return container([Part(1, graph(*args, **kwargs)), W])


def raw_graph(data: bytes) -> bytes:
    return container([Part(1, data), W])


def with_weights(*entries, payload=PAYLOAD, sibling=None, **kwargs) -> bytes:
    parts = [G, Part(3, weights(*entries, **kwargs))]
    parts += [Part(5, sibling)] if sibling is not None else []
    return container(parts + ([payload] if payload else []))


def hmw(*parts: Part, **kwargs) -> bytes:
    return container(list(parts), magic=b"TCIMHMW\0", **kwargs)


def gather(offset: int, output: int = 1) -> bytes:
    return op("AllGather", (0,), (output,), [text("offset") + b"\0" + struct.pack("<q", offset)])


def part(rank: int, *, x=X, y=None, more=(), ops=None, inputs=(0,), live_rows=NONE) -> Part:
    """Of two devices, each with one column of y [1, 2]."""
    values = (x, y or value("y", kind=3, shape=(1, 2)), *more)
    return Part(1, graph(values, (gather(rank),) if ops is None else ops, inputs, live_rows=live_rows))


def split(inputs=(-1,), outputs=(-1,)) -> bytes:
    return b"".join(struct.pack(f"<I{len(axes)}i", len(axes), *axes) for axes in (inputs, outputs))


def with_parts(*parts: Part, cut=None, ndevice=2) -> bytes:
    return container([*parts, Part(6, split() if cut is None else cut), W], ndevice=ndevice)


def port(role="", layer=-1, slot=-1, aliases=(), count=None) -> bytes:
    head = text(role) + struct.pack("<iiI", layer, slot, len(aliases) if count is None else count)
    return head + b"".join(map(text, aliases))


PORT = port()


def ports(inputs=(PORT,), outputs=(PORT,), tail=b"") -> bytes:
    return b"".join(struct.pack("<I", len(described)) + b"".join(described) for described in (inputs, outputs)) + tail


def with_ports(*args, graph=G, **kwargs) -> bytes:
    return container([graph, Part(7, ports(*args, **kwargs), flags=0), W])


LENGTH = value("length", dtype=5, shape=(1,))
Z = value("z", kind=3, shape=(1, 2))
CACHED = Part(1, graph((X, Y, value("c", kind=1)), inputs=(0, 2)))

EXTERNAL = weight(external=1, offset=0)
SIBLING = bytes(32) + text("a.hmw")
