"""Errors planted into a copy of a package, for `tcim-lite diff` to find: a weight, a position, swapped layers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tcim_lite.hmm import Container, Graph, Op, Sibling, Value, WeightEntry, WeightsWriter, read, write_model

Change = Callable[[WeightEntry, np.ndarray], np.ndarray]


def wrong_weight(entry: WeightEntry, data: np.ndarray, seed: int = 0) -> np.ndarray:
    """One element is another: a code of a packed matrix differs in its highest bit, a float is 1.25 times as large."""
    at = int(np.random.default_rng(seed).integers(0, entry.nbytes // 2))
    if entry.format == "dense":
        values = data.view(entry.dtype)
        values[at % values.size] *= 1.25
    elif entry.format == "linear_w4":
        data[at // 64 * 64 % 1024] ^= 0x08  # codes of the first unit; scales follow after 1024 bytes
    else:
        data[at % min(1024, len(data)) // 4 * 4 + 1] ^= 0x40
    return data


def plant(source: Path, target: Path, changes: Mapping[str, Change], swap: Mapping[str, str] | None = None) -> Path:
    """Copies a package with weights changed, or taken for one another.

    Args:
        source: A package with one `.hmw`.
        target: The copy.
        changes: By name of a weight, what becomes of its bytes.
        swap: By name of a weight, whose bytes it gets.
    """
    hmw, stored, models = _begin(source, target)
    data = {entry.name: np.array(np.frombuffer(stored.weight_bytes(entry), np.uint8)) for entry in stored.weights}
    by_hash = {entry.hash: entry.name for entry in stored.weights}
    used = {entry.name: entry for model in models.values() for entry in model.weights}
    made = {}
    with WeightsWriter(target / hmw.name) as writer:
        for name, entry in used.items():
            taken = (swap or {}).get(name, name)
            content = data[by_hash[used[taken].hash]].copy()
            if name in changes:
                content = changes[name](entry, content)
            made[name] = writer.add(name, entry.dtype, entry.format, entry.shape, content)
    assert changes.keys() | (swap or {}).keys() <= used.keys()
    for path, model in models.items():
        entries = [made[entry.name] for entry in model.weights]
        _write(target / path.name, model, model.graph, entries, Sibling(hmw.name, writer.id))
    return target


def move_position(source: Path, target: Path, rope: str) -> Path:
    """Copies a package in whose graphs one Rope, named by its result, turns every token by the next one's position.

    It gets tables of its own, those of the others moved up by one row.
    """
    hmw, stored, models = _begin(source, target)
    tables = {}
    with WeightsWriter(target / hmw.name) as writer:
        made = {
            entry.hash: writer.add(entry.name, entry.dtype, entry.format, entry.shape, stored.weight_bytes(entry))
            for entry in stored.weights
        }
        for entry in stored.weights:
            if entry.name in ("rope.cos", "rope.sin"):
                rows = np.frombuffer(stored.weight_bytes(entry), entry.dtype).reshape(entry.shape)
                tables[entry.name] = writer.add(
                    f"{entry.name}.moved", entry.dtype, entry.format, entry.shape, np.roll(rows, -1, axis=0)
                )
    for path, model in models.items():
        graph, entries = model.graph, [made[entry.hash] for entry in model.weights]
        entries = [replace(new, name=old.name) for new, old in zip(entries, model.weights, strict=True)]
        moved, added = _with_tables(graph, rope, entries, tables)
        _write(target / path.name, model, moved, added, Sibling(hmw.name, writer.id))
    return target


def _begin(source: Path, target: Path) -> tuple[Path, Container, dict[Path, Container]]:
    """Copies what is no model; the `.hmw` and what it and the models hold."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.hmm", "*.hmms", "*.hmw"))
    (hmw,) = source.glob("*.hmw")
    return hmw, read(hmw), {path: read(path) for path in source.glob("*.hmm")}


def _write(path: Path, like: Container, graph: Graph, weights: list[WeightEntry], sibling: Sibling) -> None:
    write_model(path, graph, weights, custom_msg=like.custom_msg, ncore=like.ncore, sibling=sibling)


def _with_tables(
    graph: Graph, rope: str, entries: list[WeightEntry], tables: Mapping[str, WeightEntry]
) -> tuple[Graph, list[WeightEntry]]:
    values, entries = list(graph.values), list(entries)

    def own(id_: int) -> int:
        table = tables[graph.values[id_].name]
        values.append(Value(table.name, "weight", table.dtype, table.shape, "dense", weight=len(entries)))
        entries.append(table)
        return len(values) - 1

    def changed(op: Op) -> Op:
        if op.kind != "Rope" or graph.values[op.outputs[0]].name != rope:
            return op
        x, cos, sin, *lengths = op.inputs
        return replace(op, inputs=[x, own(cos), own(sin), *lengths])

    ops = [changed(op) for op in graph.ops]
    assert len(values) == len(graph.values) + 2, rope
    return replace(graph, values=values, ops=ops), entries
