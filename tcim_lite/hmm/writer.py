"""Writes `.hmm`, `.hmms` and `.hmw` (docs/hmm-format.md). Files appear under their name only when they are complete."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from . import layout
from .crc32c import crc32c
from .front import encode_front
from .graph import Graph, minor_of
from .graph_rules import check_weight_values
from .graph_section import encode_graph, encode_split, encode_text
from .layout import Sibling, WeightEntry
from .parts import Split, check_parts
from .payload import Payload, TemporaryFile, check_weight_name
from .ports import encode_ports
from .weight_format import LAYOUTS
from .weight_table import encode_weight_table


@dataclass(frozen=True, slots=True)
class WeightData:
    """A weight to store in the model's own file. `data`: see `WeightsWriter.add`."""

    name: str
    dtype: str
    format: str
    shape: Sequence[int]
    data: Any


class WeightsWriter:
    """Writes a `.hmw` weight by weight; at most one chunk is in memory.

    Use it as a context manager: a clean exit puts the file in place, an exception removes it.

    Attributes:
        id: the file's 32-byte id, after the `with` block.
    """

    def __init__(self, path: str | os.PathLike[str], *, producer: str | None = None) -> None:
        self._path = Path(path)
        self._producer = producer
        self._payload: Payload | None = None
        self._entries: list[WeightEntry] = []
        self.id: bytes | None = None

    def __enter__(self) -> WeightsWriter:
        self._temporary = TemporaryFile(self._path)
        self._file = self._temporary.file
        self._payload = Payload(self._file, layout.PAYLOAD_ALIGNMENT)
        return self

    def add(self, name: str, dtype: str, format: str, shape: Sequence[int], data: Any) -> WeightEntry:
        """Stores one weight; bytes that are already in the file are not stored again.

        Args:
            name: unique in this file.
            dtype: of the stored elements, e.g. "float16"; "uint8" for linear_w4 and linear_w8.
            format: "dense" or a packed format of section 6.
            shape: the logical shape, [N, K] for a packed format.
            data: bytes-like, an array, or an iterable of either: the stored bytes in order.

        Returns:
            The entry, marked as external: put it into the list of weights of `write_model`.

        Raises:
            ValueError: a duplicate name, an unknown dtype or format, or bytes that do not fit them.
        """
        if self._payload is None:
            raise ValueError(
                f"weight {name!r}: {self._path.name} is not open, use `with WeightsWriter(path) as weights:`"
            )
        if len(self._entries) == layout.MAX_WEIGHTS:
            raise ValueError(f"weight {name!r}: a file holds at most {layout.MAX_WEIGHTS} weights")
        entry = self._payload.add(name, dtype, format, shape, data)
        self._entries.append(entry)
        return replace(entry, external=True, offset=0)

    def __exit__(self, exc_type: object, *_: object) -> None:
        payload, self._payload = self._payload, None
        if exc_type is not None or payload is None:
            self._temporary.discard()
            return
        try:
            self.id = _finish_weights(self._file, payload, self._entries, self._producer)
            self._temporary.commit()
        except BaseException:
            self._temporary.discard()
            raise


def write_model(
    path: str | os.PathLike[str],
    graph: Graph | Sequence[Graph],
    weights: Sequence[WeightEntry | WeightData],
    *,
    custom_msg: str = "",
    ncore: int = 1,
    split: Split | None = None,
    sibling: Sibling | None = None,
    producer: str | None = None,
) -> bytes:
    """Writes a `.hmm`, or a `.hmms` for as many devices as there are graphs.

    Args:
        path: where; the folder must exist.
        graph: what `Value.weight` counts in is `weights`. Of several devices a sequence in rank order.
        weights: entries of a `WeightsWriter` (stay in the sibling) or `WeightData` (stored in this file).
        custom_msg: an opaque text, JSON in practice.
        ncore: cores per device that the graph was compiled for.
        split: how the graphs of several devices share inputs and outputs; None for one device.
        sibling: the `.hmw` of the external weights.
        producer: at most 31 bytes, default "tcim_lite <version>".

    Returns:
        The file's id.

    Raises:
        ValueError: a graph, a weight or an option that the format does not allow.
    """
    temporary = TemporaryFile(Path(path))
    try:
        id_ = _write_model(temporary.file, graph, weights, custom_msg, ncore, split, sibling, producer)
        temporary.commit()
    except BaseException:
        temporary.discard()
        raise
    return id_


def model_bytes(
    graph: Graph | Sequence[Graph], weights: Sequence[WeightEntry | WeightData] = (), **options: Any
) -> bytes:
    """Returns the bytes of a `.hmm` or `.hmms`; arguments as `write_model`."""
    file = io.BytesIO()
    defaults: dict[str, Any] = {"custom_msg": "", "ncore": 1, "split": None, "sibling": None, "producer": None}
    if unknown := options.keys() - defaults.keys():
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
    _write_model(file, graph, weights, **{**defaults, **options})
    return file.getvalue()


def _lowest_version(entries: Sequence[WeightEntry], minor: int = 0) -> tuple[int, int]:
    """The lowest version that has the formats and shapes of these weights (section 7), and no lower than `minor`."""
    packed = [entry for entry in entries if entry.format != "dense"]
    needed = [layout.MINOR_OF_EXPERTS if len(entry.shape) > 2 else LAYOUTS[entry.format].minor for entry in packed]
    return layout.VERSION[0], max([minor, *needed])


def _finish_weights(file: BinaryIO, payload: Payload, entries: Sequence[WeightEntry], producer: str | None) -> bytes:
    """The table comes after the payload, whose size was not known before."""
    table = encode_weight_table(entries)
    offset = layout.align(payload.end, layout.ALIGNMENT)
    sections = [layout.Section(layout.WEIGHT_TABLE, layout.SECTION_REQUIRED, offset, len(table), crc32c(table))]
    if payload.nbytes:
        begin = layout.PAYLOAD_ALIGNMENT
        sections.append(layout.Section(layout.PAYLOAD, layout.SECTION_REQUIRED, begin, payload.nbytes, 0))
    id_ = layout.container_id([table])
    file.seek(offset)
    file.write(table)
    file.seek(0)
    version = _lowest_version(entries)
    file.write(encode_front(layout.MAGIC_WEIGHTS, version, offset + len(table), sections, id_, 1, 1, producer))
    return id_


def _sections_of(graphs: Sequence[Graph], split: Split | None, custom_msg: str) -> list[tuple[int, bytes]]:
    """What does not depend on the weights, by kind."""
    if not 1 <= len(graphs) <= layout.MAX_DEVICES:
        raise ValueError(f"{len(graphs)} graphs, a model is for 1 to {layout.MAX_DEVICES} devices")
    blobs = [(layout.GRAPH, encode_graph(part)) for part in graphs]
    check_parts(graphs, split, ValueError, f"graph {graphs[0].name!r}")
    if split is not None:
        blobs.append((layout.SPLIT, encode_split(split)))
    if ports := encode_ports(graphs):
        blobs.append((layout.PORTS, ports))
    message = custom_msg.encode()
    if b"\0" in message:
        raise ValueError("custom_msg contains a NUL")
    if len(message) > layout.MAX_CUSTOM_MSG_BYTES:
        raise ValueError(f"custom_msg has {len(message)} bytes, the limit is {layout.MAX_CUSTOM_MSG_BYTES}")
    if message:
        blobs.append((layout.CUSTOM_MSG, message))
    return blobs


def _stored(weights: Sequence[WeightEntry | WeightData], payload: Payload) -> list[WeightEntry]:
    """Stores those that are not in another file; returns the entries of all."""
    entries = []
    taken: set[str] = set()
    for weight in weights:
        check_weight_name(weight.name, taken)
        taken.add(weight.name)
        if isinstance(weight, WeightEntry):
            entries.append(replace(weight, external=True, offset=0))
        else:
            entries.append(payload.add(weight.name, weight.dtype, weight.format, weight.shape, weight.data))
    return entries


def _table_bytes(weights: Sequence[WeightEntry | WeightData]) -> int:
    """Of their weight table."""
    names_bytes = sum(len(weight.name.encode()) for weight in weights)
    return layout.WEIGHT_TABLE_HEADER.size + len(weights) * layout.WEIGHT_BYTES + names_bytes


def _write_section(file: BinaryIO, kind: int, offset: int, blob: bytes) -> layout.Section:
    file.seek(offset)
    file.write(blob)
    flags = 0 if kind in (layout.CUSTOM_MSG, layout.PORTS) else layout.SECTION_REQUIRED
    return layout.Section(kind, flags, offset, len(blob), crc32c(blob))


def _write_model(
    file: BinaryIO,
    graph: Graph | Sequence[Graph],
    weights: Sequence[WeightEntry | WeightData],
    custom_msg: str,
    ncore: int,
    split: Split | None,
    sibling: Sibling | None,
    producer: str | None,
) -> bytes:
    graphs = [graph] if isinstance(graph, Graph) else list(graph)
    blobs = _sections_of(graphs, split, custom_msg)
    if len(weights) > layout.MAX_WEIGHTS:
        raise ValueError(f"{len(weights)} weights, the limit is {layout.MAX_WEIGHTS}")
    external = [weight for weight in weights if isinstance(weight, WeightEntry)]
    if bool(external) != (sibling is not None):
        raise ValueError(
            f"{len(external)} weights are external and sibling is {sibling}; give `sibling` exactly when there are some"
        )
    # The sizes of all sections are known before the payload is written, so the file is written front to back.
    table_index = len(blobs)
    blobs.append((layout.WEIGHT_TABLE, bytes(_table_bytes(weights))))
    if sibling is not None:
        if not layout.is_bare_file_name(sibling.file) or len(sibling.id) != 32:
            raise ValueError(f"{sibling} must have a bare file name and an id of 32 bytes")
        blobs.append((layout.SIBLING, sibling.id + encode_text(sibling.file)))

    num_sections = len(blobs) + (len(external) < len(weights))
    offsets, end = [], layout.HEADER_BYTES + num_sections * layout.SECTION_BYTES
    for _, blob in blobs:
        offsets.append(layout.align(end, layout.ALIGNMENT))
        end = offsets[-1] + len(blob)
    payload = Payload(file, layout.align(end, layout.PAYLOAD_ALIGNMENT))
    entries = _stored(weights, payload)
    for part in graphs:
        check_weight_values(part, entries, ValueError, f"graph {part.name!r}")

    blobs[table_index] = (layout.WEIGHT_TABLE, encode_weight_table(entries))
    sections = [_write_section(file, kind, offset, blob) for (kind, blob), offset in zip(blobs, offsets, strict=True)]
    file_bytes = end
    if payload.nbytes:
        begin, file_bytes = payload.end - payload.nbytes, payload.end
        sections.append(layout.Section(layout.PAYLOAD, layout.SECTION_REQUIRED, begin, payload.nbytes, 0))
    id_ = layout.container_id([blob for _, blob in blobs])
    file.seek(0)
    has_ports = any(kind == layout.PORTS for kind, _ in blobs)
    minor = max([layout.MINOR_OF_PORTS if has_ports else 0, *(minor_of(op) for graph in graphs for op in graph.ops)])
    version = _lowest_version(entries, minor)
    file.write(encode_front(layout.MAGIC_MODEL, version, file_bytes, sections, id_, ncore, len(graphs), producer))
    return id_
