"""Tensors of a checkpoint whose Linears are stored as codes, read as the floats that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ..checkpoint import FLOATS, Checkpoint
from .integers import IntegerTensor


class Coded(Protocol):
    """One tensor that is stored as codes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the floats: [N, K], or of several matrices [E, N, K]."""

    def check(self) -> None:
        """Raises CheckpointError unless all that it is made of is there and fits."""

    def rows(self, several: tuple[int, ...], start: int, stop: int) -> NDArray[np.float32]:
        """Returns rows start..stop of the matrix; of several, of the one that `several` names."""


class Layout(Protocol):
    """How a method stores tensors."""

    def names(self, stored: Sequence[str]) -> Iterable[str]:
        """Yields the names of the floats, of the names of what is stored."""

    def coded(self, store: Checkpoint, name: str) -> Coded | None:
        """Returns how a tensor of floats is stored; None of one that is stored as floats, or is not there.

        Raises:
            CheckpointError: It is stored as `quantization_config` does not say.
        """


class DecodedTensors:
    """As `Checkpoint`; what a Linear is stored as is seen as one tensor of floats."""

    def __init__(self, store: Checkpoint, layout: Layout) -> None:
        self._store, self._layout = store, layout

    def __contains__(self, name: str) -> bool:
        return name in self._store or self._layout.coded(self._store, name) is not None

    def names(self) -> list[str]:
        return list(self._layout.names(self._store.names()))

    def shape(self, name: str) -> tuple[int, ...]:
        coded = self._layout.coded(self._store, name)
        return self._store.shape(name) if coded is None else coded.shape

    def check(self, name: str, shape: Sequence[int], dtypes: Sequence[str] = FLOATS) -> None:
        """As `Checkpoint.check`, of all that a tensor is made of; `dtypes` are those of one that is no codes."""
        coded = self._layout.coded(self._store, name)
        if coded is None:
            return self._store.check(name, shape, dtypes)
        coded.check()
        if coded.shape != tuple(shape):
            raise CheckpointError(
                f"tensor {self._store.stored_name(name)!r} in {self._store.folder} stands for shape "
                f"{list(coded.shape)}, expected {list(shape)} by config.json"
            )

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        coded = self._layout.coded(self._store, name)
        if coded is None:
            return self._store.read(name, start, stop)
        return self._finite(name, coded.rows((), start, coded.shape[0] if stop is None else stop))

    def part(self, name: str, index: tuple[int | slice, ...]) -> NDArray[Any]:
        """As `Checkpoint.part`; of codes in fp32, of one matrix of several."""
        coded = self._layout.coded(self._store, name)
        if coded is None:
            return self._store.part(name, index)
        several = tuple(at for at in index if isinstance(at, int))
        rows, *columns = index[len(several) :]
        assert isinstance(rows, slice)
        start, stop, _ = rows.indices(coded.shape[-2])
        return self._finite(name, coded.rows(several, start, stop))[:, (columns or [slice(None)])[0]]

    def has_codes(self, name: str) -> bool:
        """Whether a tensor has codes that our 4-bit format can hold as they are."""
        coded = self._layout.coded(self._store, name)
        return isinstance(coded, IntegerTensor) and coded.fits_four_bits()

    def check_codes(self, name: str) -> None:
        """Accepts every tensor that has codes: others are quantised again."""

    def codes(self, name: str, start: int, stop: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        """Returns rows of codes, and the scales of each 64 of them."""
        coded = self._layout.coded(self._store, name)
        assert isinstance(coded, IntegerTensor)
        return coded.codes(start, stop)

    def _finite(self, name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        if not np.isfinite(values).all():
            raise CheckpointError(
                f"tensor {self._store.stored_name(name)!r} in {self._store.folder} holds a code that stands for NaN, "
                "or a product with its scale beyond float32"
            )
        return values
