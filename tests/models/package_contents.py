"""What is in a package: its files, and the inputs and weights of its graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tcim_lite.hmm import read
from tcim_lite.models.weights.packing import unpack

Make = Callable[..., Path]
QUANTS = ("w4a8h0_ssfp", "w8a8h1_sefp", "mxfp4a8", "float16", "float32")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(package: Path, name: str) -> tuple[str, np.ndarray, np.ndarray | None]:
    """Format, codes or values, and scales of a weight."""
    container = read(package / "qwen3.hmw")
    entry = next(entry for entry in container.weights if entry.name == name)
    data = container.weight_bytes(entry)
    if entry.format == "dense":
        return entry.format, np.frombuffer(data, entry.dtype).reshape(entry.shape), None
    return entry.format, *unpack(data, entry.format, *entry.shape)


def inputs_of(path: Path) -> list[tuple[str, str, str, tuple[int, ...]]]:
    graph = read(path).graph
    values = [graph.values[id_] for id_ in graph.inputs]
    return [(value.name, value.kind, value.dtype, tuple(value.shape)) for value in values]
