"""Files of safetensors: what tensors one has, and what is wrong with one that cannot be opened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.errors import CheckpointError, need_extra

INDEX = "model.safetensors.index.json"
MOST_JSON_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a file: its dtype as safetensors calls it, its shape, and where its first byte is."""

    dtype: str
    shape: tuple[int, ...]
    begin: int


def import_safe_open() -> Any:
    try:
        import ml_dtypes  # noqa: F401  numpy has no bfloat16 of its own
    except ImportError:
        raise need_extra("ml_dtypes", "reading bf16 tensors") from None
    try:
        from safetensors import safe_open
    except ImportError:
        raise need_extra("safetensors", "reading a checkpoint") from None
    return safe_open


def open_file(path: Path, name: str | None = None) -> Any:
    safe_open = import_safe_open()
    try:
        file = safe_open(str(path), framework="numpy")
        if name is not None and name not in file.keys():  # noqa: SIM118  not a dict
            raise missing(path, name)
    except CheckpointError:
        raise
    except Exception as error:  # safetensors raises its own type, OSError or others by version
        raise CheckpointError(f"{path} is not a readable safetensors file: {_cut_off(path) or error}") from error
    return file


def missing(path: Path, name: str) -> CheckpointError:
    return CheckpointError(f"{path} has no tensor {name!r}, but {INDEX} says so (mixed downloads?)")


def entries_of(path: Path) -> dict[str, Entry]:
    """The tensors of a file, which safetensors has found to be whole."""
    open_file(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        name: Entry(entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _cut_off(path: Path) -> str | None:
    """Says why a safetensors file cannot be opened, or which tensor lies beyond its end; None where it is neither."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = 8 + int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(start - 8)) if start <= min(size, MOST_JSON_BYTES) else {}
        ends = {name: start + entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"}
        first = min((name for name, end in ends.items() if end > size), key=ends.__getitem__, default=None)
    except OSError as error:
        return error.strerror
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if first is None:
        return None
    whole = max(ends.values())
    return f"tensor {first!r} ends at byte {ends[first]}, the file has {size} of {whole} (incomplete download?)"
