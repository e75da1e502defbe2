"""Tensors of modules whose rows torch's `weight_norm` keeps as directions and lengths, under their plain names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .checkpoint import TensorStore

_PLAIN, _PARTS = ".weight", ".parametrizations.weight."
_LENGTHS, _ROWS = f"{_PARTS}original0", f"{_PARTS}original1"  # [N, 1] and [N, K]


class NormedTensors:
    """A `TensorStore` of another."""

    def __init__(self, store: TensorStore) -> None:
        self._store = store

    @staticmethod
    def fits(store: TensorStore) -> bool:
        """Whether a store has such tensors."""
        return any(name.endswith(_ROWS) for name in store.names())

    def __contains__(self, name: str) -> bool:
        return name in self._store or self._parted(name)

    def names(self) -> list[str]:
        found = (name for name in self._store.names() if not name.endswith(_LENGTHS))
        return [name.removesuffix(_ROWS) + _PLAIN if name.endswith(_ROWS) else name for name in found]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._store.shape(_parts(name)[1] if self._parted(name) else name)

    def check(self, name: str, shape: Sequence[int]) -> None:
        if not self._parted(name):
            return self._store.check(name, shape)
        lengths, rows = _parts(name)
        self._store.check(lengths, (shape[0], 1))
        self._store.check(rows, shape)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        if not self._parted(name):
            return self._store.read(name, start, stop)
        lengths, rows = (self._store.read(part, start, stop).astype(np.float64) for part in _parts(name))
        norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        return (rows * (lengths / np.maximum(norms, np.finfo(np.float32).tiny))).astype(np.float32)

    def _parted(self, name: str) -> bool:
        return name.endswith(_PLAIN) and _parts(name)[1] in self._store


def _parts(name: str) -> tuple[str, str]:
    """Where the lengths and the directions of rows are."""
    module = name.removesuffix(_PLAIN)
    return module + _LENGTHS, module + _ROWS
