"""Numbers of 8 and 4 bits, and scales that blocks of a matrix share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ..checkpoint import FLOATS, Checkpoint

E4M3, E8M0 = "F8_E4M3", "F8_E8M0"
SCALES = (*FLOATS, E8M0)
# Of 4 bits: the sign is the highest.
_SIZES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate((_SIZES, -_SIZES))


@cache
def float8_values(dtype: str) -> NDArray[np.float32]:
    """Returns what each of 256 bytes stands for."""
    import ml_dtypes

    kind = {E4M3: ml_dtypes.float8_e4m3fn, E8M0: ml_dtypes.float8_e8m0fnu}[dtype]
    return np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)


def numbers(store: Checkpoint, name: str, index: tuple[int | slice, ...]) -> NDArray[np.float32]:
    """Returns a part of a tensor of floats or, in one of bytes, of exponents, in fp32."""
    part, dtype = store.part(name, index), store.dtype(name)
    kind = {E4M3: E4M3, E8M0: E8M0, "U8": E8M0}.get(dtype)  # MXFP8's writers call exponents U8
    return part.astype(np.float32) if kind is None else float8_values(kind)[part]


def nibbles(packed: NDArray[np.uint8], *, low_first: bool) -> NDArray[np.uint8]:
    """[.., K / 2] -> [.., K]."""
    halves = (packed & 15, packed >> 4)
    return np.stack(halves if low_first else halves[::-1], axis=-1).reshape(*packed.shape[:-1], -1)


@dataclass(frozen=True, slots=True)
class BlockScales:
    """A scale for each block of a matrix, or of each of several.

    Attributes:
        store: Has them.
        name: Of the tensor.
        shape: Of what they scale, [.., N, K].
        block: Rows and columns that share one; those at the ends of a matrix may be smaller.
        dtypes: That it may have.
        zeros: Zero is a scale, of blocks that are all zeros.
    """

    store: Checkpoint
    name: str
    shape: tuple[int, ...]
    block: tuple[int, int]
    dtypes: tuple[str, ...] = SCALES
    zeros: bool = False

    @property
    def _grid(self) -> tuple[int, ...]:
        *several, rows, columns = self.shape
        return (*several, -(-rows // self.block[0]), -(-columns // self.block[1]))

    def check(self) -> None:
        """Raises CheckpointError unless they are there with a shape that fits, and are numbers."""
        grid, got = self._grid, self.store.shape(self.name)
        # One for all, and one for each row, may lack axes of 1.
        short = grid
        while len(short) > 1 and short[-1] == 1:
            short = short[:-1]
        fits = len(short) <= len(got) <= len(grid) and got == grid[: len(got)]
        self.store.check(self.name, got if fits else grid, self.dtypes)
        self._read(tuple(slice(None) for _ in got))

    def rows(
        self, several: tuple[int, ...], start: int, stop: int, order: NDArray[np.int32] | None = None
    ) -> NDArray[np.float32]:
        """Returns what rows start..stop of one matrix are multiplied by, [stop - start, K] or what broadcasts to it.

        Args:
            several: Which of several matrices.
            start: The first row.
            stop: The one behind the last.
            order: Of each column, its block; None: blocks lie side by side.

        Raises:
            CheckpointError: They are no numbers.
        """
        rows, columns = self.block
        first = start // rows
        part = slice(first, -(-stop // rows))
        grid, got = self._grid, self.store.shape(self.name)
        whole: tuple[int | slice, ...] = (*several, part)
        values = self._read((slice(None),) if got == (1,) else whole[: len(got)])
        if len(got) < len(grid):
            values = values.reshape(-1, 1)
        if part.stop - first > 1:
            values = np.repeat(values, rows, axis=0)[start - first * rows : stop - first * rows]
        return spread(values, columns, self.shape[-1], order)

    def _read(self, index: tuple[int | slice, ...]) -> NDArray[np.float32]:
        values = numbers(self.store, self.name, index)
        return checked(self.store, self.name, values, zeros=self.zeros)


def spread(values: NDArray[Any], columns: int, inputs: int, order: NDArray[np.int32] | None = None) -> NDArray[Any]:
    """[rows, groups] -> [rows, inputs], or as it is where all inputs are in one group of `columns`."""
    if order is not None:
        return np.take(values, order, axis=1)
    return np.repeat(values, columns, axis=1)[:, :inputs] if values.shape[1] > 1 else values


def checked(store: Checkpoint, name: str, values: NDArray[Any], *, zeros: bool = False) -> NDArray[Any]:
    """Returns scales; CheckpointError if one is NaN, infinite or, unless `zeros`, zero."""
    if not np.isfinite(values).all():
        raise CheckpointError(f"{store.where(name)} holds NaN or infinity, expected finite scales")
    if not zeros and not values.all():
        raise CheckpointError(f"{store.where(name)} holds a scale of zero, expected others (damaged file?)")
    return values
