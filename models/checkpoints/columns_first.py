"""Checkpoints of GPT-2, whose modules keep their matrices transposed: [inputs, outputs]."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from .checkpoint import PartStore

_TURNED = re.compile(r".*\.(c_attn|c_proj|c_fc)\.weight")


class ColumnsFirst:
    """A `TensorStore` of another, with all matrices as [outputs, inputs]."""

    def __init__(self, store: PartStore) -> None:
        self._store = store

    @staticmethod
    def fits(store: PartStore) -> bool:
        """Whether a store has modules of such names."""
        return any(map(_TURNED.fullmatch, store.names()))

    def __contains__(self, name: str) -> bool:
        return name in self._store

    def names(self) -> list[str]:
        return self._store.names()

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self._store.shape(name)
        return shape[::-1] if _TURNED.fullmatch(name) else shape

    def check(self, name: str, shape: Sequence[int]) -> None:
        self._store.check(name, shape[::-1] if _TURNED.fullmatch(name) else shape)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        if not _TURNED.fullmatch(name):
            return self._store.read(name, start, stop)
        columns = self._store.part(name, (slice(None), slice(start, stop))).astype(np.float32)
        if not np.isfinite(columns).all():
            raise CheckpointError(f"tensor {name!r} holds NaN or infinity")
        return np.ascontiguousarray(columns.T)
