"""Bytes of the graph and the split section (docs/hmm-format.md section 5)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..errors import HmmFormatError
from . import layout
from .cursor import Cursor
from .graph import OPS, Attribute, Graph, Op, Value, version_of
from .graph_rules import check_graph
from .parts import Split


def encode_graph(graph: Graph) -> bytes:
    """Returns the bytes of a graph section.

    Raises:
        ValueError: the graph breaks a rule of section 5 or a limit of section 1.
    """
    for value in graph.values:
        for text, table in (
            (value.kind, layout.VALUE_KINDS),
            (value.dtype, layout.DTYPES),
            (value.format, layout.FORMATS),
        ):
            if text not in table:
                raise ValueError(f"value {value.name!r}: {text!r} is not one of {', '.join(table)}")
    for op in graph.ops:
        if op.kind not in OPS:
            raise ValueError(f"op {op.kind!r} is not one of {', '.join(OPS)}")
    if len(graph.values) > layout.MAX_VALUES or len(graph.ops) > layout.MAX_OPS:
        raise ValueError(f"graph has {len(graph.values)} values and {len(graph.ops)} ops, the limit is 2^20 each")
    check_graph(graph, ValueError, f"graph {graph.name!r}")

    parts = [encode_text(graph.name), _u32(layout.NO_VALUE if graph.live_rows is None else graph.live_rows)]
    parts.append(_u32(len(graph.values)))
    for value in graph.values:
        codes = (layout.VALUE_KINDS[value.kind], layout.DTYPES[value.dtype], layout.FORMATS[value.format])
        parts.append(encode_text(value.name))
        parts.append(bytes((*codes, len(value.shape))))
        parts.append(struct.pack(f"<{len(value.shape)}Q", *value.shape))
        parts.append(_u32(layout.NO_VALUE if value.weight is None else value.weight))
    parts.append(_u32(len(graph.ops)))
    for op in graph.ops:
        parts.append(encode_text(op.kind))
        if len(op.attributes) > layout.MAX_ATTRIBUTES:
            raise ValueError(f"op {op.kind} has {len(op.attributes)} attributes, the limit is {layout.MAX_ATTRIBUTES}")
        parts.append(struct.pack("<HHII", version_of(op), len(op.attributes), len(op.inputs), len(op.outputs)))
        parts += [_ids(op.inputs), _ids(op.outputs)]
        for key, attribute in op.attributes.items():
            parts += [encode_text(key), _encode_attribute(op, key, attribute)]
    for ids in (graph.inputs, graph.outputs):
        parts += [_u32(len(ids)), _ids(ids)]
    data = b"".join(parts)
    if len(data) > layout.MAX_GRAPH_BYTES:
        raise ValueError(f"graph {graph.name!r} takes {len(data)} bytes, the limit is {layout.MAX_GRAPH_BYTES}")
    return data


def decode_graph(data: bytes | memoryview, label: str = "graph section") -> Graph:
    """Reads a graph section.

    Raises:
        HmmFormatError: anything that section 5 does not allow.
    """
    cursor = Cursor(memoryview(data), label)
    name = cursor.text(layout.MAX_NAME_BYTES, "the graph's name")
    live_rows = cursor.u32("live_rows")
    values = [_decode_value(cursor) for _ in range(cursor.count(layout.MAX_VALUES, 21, "values"))]
    ops = [_decode_op(cursor) for _ in range(cursor.count(layout.MAX_OPS, 17, "ops"))]
    inputs = cursor.ids(cursor.count(layout.MAX_VALUES, 4, "inputs"), "the list of inputs")
    outputs = cursor.ids(cursor.count(layout.MAX_VALUES, 4, "outputs"), "the list of outputs")
    cursor.end()
    graph = Graph(name, values, ops, inputs, outputs, None if live_rows == layout.NO_VALUE else live_rows)
    check_graph(graph, HmmFormatError, label)
    return graph


def encode_split(split: Split) -> bytes:
    """Returns the bytes of a split section."""
    return b"".join(struct.pack(f"<I{len(axes)}i", len(axes), *axes) for axes in (split.inputs, split.outputs))


def decode_split(data: bytes | memoryview, label: str = "split section") -> Split:
    """Reads a split section; HmmFormatError if it is cut off or too long."""
    cursor = Cursor(memoryview(data), label)
    inputs, outputs = (
        struct.unpack(f"<{count}i", cursor.take(4 * count, "the axes"))
        for count in (cursor.count(layout.MAX_VALUES, 4, "axes") for _ in range(2))
    )
    cursor.end()
    return Split(inputs, outputs)


def encode_text(text: str) -> bytes:
    """Returns a *string* of section 1."""
    data = text.encode("utf-8")
    if len(data) > layout.MAX_NAME_BYTES or b"\0" in data:
        raise ValueError(f"text {text[:60]!r} has {len(data)} bytes (limit {layout.MAX_NAME_BYTES}) or contains a NUL")
    return _u32(len(data)) + data


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _ids(ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


def _encode_attribute(op: Op, key: str, attribute: Attribute) -> bytes:
    if isinstance(attribute, bool) or not isinstance(attribute, int | float | str):
        raise ValueError(f"op {op.kind}: attribute {key!r} is {attribute!r}, expected an int, a float or a str")
    if isinstance(attribute, int):
        if not -(1 << 63) <= attribute < 1 << 63:
            raise ValueError(f"op {op.kind}: attribute {key!r} is {attribute}, which does not fit 64 bits")
        return b"\0" + attribute.to_bytes(8, "little", signed=True)
    if isinstance(attribute, float):
        return b"\1" + struct.pack("<d", attribute)
    return b"\2" + encode_text(attribute)


def _decode_value(cursor: Cursor) -> Value:
    name = cursor.text(layout.MAX_NAME_BYTES, "a value's name")
    codes = []
    for what, table in (
        ("kind", layout.VALUE_KIND_NAMES),
        ("dtype", layout.DTYPE_NAMES),
        ("format", layout.FORMAT_NAMES),
    ):
        code = cursor.u8(f"the {what} of value '{name}'")
        if code not in table:
            raise HmmFormatError(
                f"{cursor.label}: value '{name}' has {what} {code}, known are {min(table)} to {max(table)}"
            )
        codes.append(table[code])
    kind, dtype, format_ = codes
    rank = cursor.u8(f"the rank of value '{name}'")
    if not 1 <= rank <= layout.MAX_RANK:
        raise HmmFormatError(f"{cursor.label}: value '{name}' has rank {rank}, expected 1 to {layout.MAX_RANK}")
    shape = [cursor.u64(f"the shape of value '{name}'") for _ in range(rank)]
    weight = cursor.u32(f"the weight of value '{name}'")
    return Value(name, kind, dtype, shape, format_, None if weight == layout.NO_VALUE else weight)


def _decode_op(cursor: Cursor) -> Op:
    kind = cursor.text(layout.MAX_NAME_BYTES, "an op's name")
    version = cursor.u16(f"the version of op {kind}")
    if not 1 <= version <= OPS.get(kind, 0):
        known = f"versions up to {OPS[kind]}" if kind in OPS else f"the ops {', '.join(OPS)}"
        raise HmmFormatError(
            f"{cursor.label}: op '{kind}' version {version} is unknown, this reader knows {known}; "
            "update tcim_lite or compile again"
        )
    num_attributes = cursor.u16(f"the attributes of op {kind}")
    if num_attributes > layout.MAX_ATTRIBUTES:
        raise HmmFormatError(
            f"{cursor.label}: op {kind} has {num_attributes} attributes, the limit is {layout.MAX_ATTRIBUTES}"
        )
    num_inputs = cursor.u32(f"the inputs of op {kind}")
    num_outputs = cursor.u32(f"the outputs of op {kind}")
    inputs = cursor.ids(num_inputs, f"the inputs of op {kind}")
    outputs = cursor.ids(num_outputs, f"the outputs of op {kind}")
    attributes: dict[str, Attribute] = {}
    for _ in range(num_attributes):
        key = cursor.text(layout.MAX_NAME_BYTES, f"an attribute of op {kind}")
        what = f"attribute '{key}' of op {kind}"
        if key in attributes:
            raise HmmFormatError(f"{cursor.label}: {what} appears twice")
        type_ = cursor.u8(what)
        if type_ == 0:
            attributes[key] = int.from_bytes(cursor.take(8, what), "little", signed=True)
        elif type_ == 1:
            attributes[key] = struct.unpack("<d", cursor.take(8, what))[0]
        elif type_ == 2:
            attributes[key] = cursor.text(layout.MAX_NAME_BYTES, what)
        else:
            raise HmmFormatError(f"{cursor.label}: {what} has type {type_}, known are 0 to 2")
    return Op(kind, inputs, outputs, attributes)
