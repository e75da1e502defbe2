"""Matrices that are read a few rows at a time, and the merged forms the kernels run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.weight_format import GROUP

from ..checkpoints.checkpoint import CodeStore, TensorStore
from .packing import BLOCK


class Matrix(Protocol):
    """A matrix [N, K] of fp32 that need not be in memory; `read` may be called from several threads.

    Of a `CodeMatrix` and what is merged from such, the numbers are bytes.
    """

    shape: tuple[int, int]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Returns rows start..stop, [stop - start, K]; 0 <= start < stop <= N."""


class TensorMatrix:
    """A tensor of a checkpoint as a matrix: all axes but the first are one."""

    def __init__(self, checkpoint: TensorStore, name: str, shape: tuple[int, ...]) -> None:
        """Raises CheckpointError unless the tensor is there with `shape`."""
        checkpoint.check(name, shape)
        self.shape = (shape[0], math.prod(shape[1:]))
        self._checkpoint, self._name = checkpoint, name

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        return self._checkpoint.read(self._name, start, stop).reshape(-1, self.shape[1])


class ArrayMatrix:
    """A matrix in memory."""

    def __init__(self, array: NDArray[np.float32]) -> None:
        self.shape = (array.shape[0], array.shape[1])
        self._array = array

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        return self._array[start:stop]


class Scaled:
    """A matrix of which every element is multiplied, by one number or by that of its row, [N, 1]."""

    def __init__(self, matrix: Matrix, scale: float | NDArray[np.float64]) -> None:
        self.shape = matrix.shape
        self._matrix, self._scales = matrix, _by_row(scale, matrix.shape[0])

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        return self._matrix.read(start, stop) * self._scales[start:stop]


class CodeMatrix:
    """A matrix tensor that is stored as 4-bit codes: of each row the K codes (int8), then its fp16 scales, as bytes.

    What multiplies every element, or those of each row [N, 1], is in the scales, rounded to fp16.
    """

    def __init__(
        self, checkpoint: CodeStore, name: str, shape: tuple[int, ...], scale: float | NDArray[np.float64] = 1.0
    ) -> None:
        """Raises CheckpointError unless the tensor is there with `shape`."""
        checkpoint.check(name, shape)
        self.shape = (shape[0], shape[1] + 2 * (shape[1] // GROUP))
        self._checkpoint, self._name, self._is_scaled = checkpoint, name, bool(np.any(scale != 1))
        self._scales = _by_row(scale, shape[0])

    def read(self, start: int, stop: int) -> NDArray[Any]:
        codes, scales = self._checkpoint.codes(self._name, start, stop)
        if self._is_scaled:
            most = np.float32(np.finfo(np.float16).max)
            scales = np.minimum(scales * self._scales[start:stop], most).astype(np.float16)
        return np.concatenate((codes.view(np.uint8), np.ascontiguousarray(scales).view(np.uint8)), axis=1)


def _by_row(scale: float | NDArray[np.float64], rows: int) -> NDArray[np.float32]:
    """Returns what multiplies each row, [N, 1]."""
    return np.broadcast_to(np.asarray(scale, np.float32), (rows, 1))


class RandomMatrix:
    """Normally distributed numbers that depend on seed and position only."""

    _ROWS = 32  # drawn together, so that the cut into chunks does not matter

    def __init__(self, shape: tuple[int, int], seed: Sequence[int], deviation: float = 0.02) -> None:
        self.shape = shape
        self._seed, self._deviation = list(seed), np.float32(deviation)

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        first = start // self._ROWS
        tiles = [
            np.random.default_rng([*self._seed, tile]).standard_normal((self._ROWS, self.shape[1]), dtype=np.float32)
            for tile in range(first, -(-stop // self._ROWS))
        ]
        offset = first * self._ROWS
        return np.concatenate(tiles)[start - offset : stop - offset] * self._deviation


class Rows:
    """Some rows of a matrix."""

    def __init__(self, inner: Matrix, start: int, stop: int) -> None:
        self.shape = (stop - start, inner.shape[1])
        self._inner, self._start = inner, start

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self._inner.read(self._start + start, self._start + stop)


class Transposed:
    """The transposed of a matrix that is small enough to be read whole."""

    def __init__(self, inner: Matrix) -> None:
        self.shape = (inner.shape[1], inner.shape[0])
        self._inner = inner

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return np.ascontiguousarray(self._inner.read(0, self.shape[1])[:, start:stop].T)


class PairsApart:
    """Heads that turn in pairs of neighbours, as kernels want them: first elements of pairs, second ones, the rest."""

    def __init__(self, inner: Matrix, head_dim: int, turned: int) -> None:
        self.shape = inner.shape
        self._inner, self._order = inner, pairs_apart(head_dim, turned)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        each = len(self._order)
        first, last = start // each * each, -(-stop // each) * each
        heads = self._inner.read(first, last).reshape(-1, each, self.shape[1])[:, self._order]
        return heads.reshape(-1, self.shape[1])[start - first : stop - first]


def pairs_apart(head_dim: int, turned: int) -> NDArray[np.int64]:
    """Where the elements of a head come from, of which the first `turned` are pairs of neighbours."""
    pairs = np.arange(turned).reshape(-1, 2)
    return np.concatenate([pairs[:, 0], pairs[:, 1], np.arange(turned, head_dim)])


class Stacked:
    """Matrices with equal K, one under the other."""

    def __init__(self, parts: Sequence[Matrix]) -> None:
        self.shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
        self._parts = parts

    def read(self, start: int, stop: int) -> NDArray[Any]:
        pieces, offset = [], 0
        for part in self._parts:
            first, last = max(start - offset, 0), min(stop - offset, part.shape[0])
            if first < last:
                pieces.append(part.read(first, last))
            offset += part.shape[0]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class Alternating:
    """Two matrices of equal shape whose rows alternate in blocks of 16: the merged gate and up projections."""

    def __init__(self, first: Matrix, second: Matrix) -> None:
        assert first.shape == second.shape
        assert first.shape[0] % BLOCK == 0
        self.shape = (2 * first.shape[0], first.shape[1])
        self._first, self._second = first, second

    def read(self, start: int, stop: int) -> NDArray[Any]:
        assert start % (2 * BLOCK) == stop % (2 * BLOCK) == 0
        shape = (-1, BLOCK, self.shape[1])
        pair = [part.read(start // 2, stop // 2).reshape(shape) for part in (self._first, self._second)]
        return np.stack(pair, axis=1).reshape(stop - start, self.shape[1])


class ZeroPadded:
    """A matrix with zero rows and columns added up to `shape`."""

    def __init__(self, inner: Matrix, shape: tuple[int, int]) -> None:
        self.shape = shape
        self._inner = inner

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        rows = np.zeros((stop - start, self.shape[1]), np.float32)
        last = min(stop, self._inner.shape[0])
        if start < last:
            rows[: last - start, : self._inner.shape[1]] = self._inner.read(start, last)
        return rows
