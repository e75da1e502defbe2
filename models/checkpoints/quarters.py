"""Checkpoints of CodeGen, which have q, v and k of each quarter of the heads one after the other, in one tensor."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from .checkpoint import PartStore

_QUARTERS, _ORDER = 4, "qvk"
_WHOLE = re.compile(r"(?P<module>.*\.attn)\.qkv_proj\.weight")
_OWN = re.compile(r"(?P<module>.*\.attn)\.(?P<part>[qkv])_proj\.weight")


class Quarters:
    """A `TensorStore` of another, with q, k and v as tensors of their own, as GPT-J has them."""

    def __init__(self, store: PartStore) -> None:
        self._store = store

    @staticmethod
    def fits(store: PartStore) -> bool:
        """Whether a store has such tensors."""
        return any(map(_WHOLE.fullmatch, store.names()))

    def __contains__(self, name: str) -> bool:
        return (self._whole(name) or name) in self._store

    def names(self) -> list[str]:
        names = []
        for name in self._store.names():
            whole = _WHOLE.fullmatch(name)
            names += [name] if whole is None else [f"{whole['module']}.{part}_proj.weight" for part in "qkv"]
        return names

    def shape(self, name: str) -> tuple[int, ...]:
        if (whole := self._whole(name)) is None:
            return self._store.shape(name)
        rows, *inputs = self._store.shape(whole)
        return (rows // len(_ORDER), *inputs)

    def check(self, name: str, shape: Sequence[int]) -> None:
        if (whole := self._whole(name)) is None:
            return self._store.check(name, shape)
        if shape[0] % _QUARTERS:
            raise CheckpointError(
                f"tensor {whole!r} has {_QUARTERS} equal parts, which {shape[0]} rows of q do not make"
            )
        return self._store.check(whole, (len(_ORDER) * shape[0], *shape[1:]))

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        if (whole := self._whole(name)) is None:
            return self._store.read(name, start, stop)
        rows = self.shape(name)[0]
        each, stop = rows // _QUARTERS, rows if stop is None else stop
        which = _ORDER.index(_OWN.fullmatch(name)["part"])  # type: ignore[index]
        pieces = []
        for quarter in range(start // each, -(-stop // each)):
            first = (quarter * len(_ORDER) + which) * each - quarter * each  # of the whole, less the row of this part
            begin, end = max(start, quarter * each), min(stop, (quarter + 1) * each)
            pieces.append(self._store.read(whole, first + begin, first + end))
        return np.concatenate(pieces)

    def _whole(self, name: str) -> str | None:
        """The tensor that a part of is called so; None of what is a tensor of the store by itself."""
        own = _OWN.fullmatch(name)
        whole = None if own is None else f"{own['module']}.qkv_proj.weight"
        return whole if whole is not None and whole in self._store else None
