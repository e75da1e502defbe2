"""What a compiled weight is made of: declared by a model family, filled from a checkpoint or at random."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..checkpoints.checkpoint import CodeStore, TensorStore
from ..checkpoints.four_bit import FourBitCheckpoint
from ..checkpoints.quantized.store import DecodedTensors
from .matrix import (
    CodeMatrix,
    Matrix,
    RandomMatrix,
    Scaled,
    TensorMatrix,
    pairs_apart,
)
from .merging import merged
from .pack_stream import code_chunks, packed_chunks, random_chunks
from .packing import DTYPES, is_quantized
from .roles import POSITIONS, SINKS, Role
from .vectors import FUNCTIONS, Function, Merge, in_order, merged_length, merged_vector


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearSpec:
    """A packed Linear weight [N, K].

    Attributes:
        role: What it is to the model.
        layer: Its layer, if it belongs to one.
        format: A linear format.
        shape: [N, K], after merging and padding.
        tensors: Names of the checkpoint tensors it is merged from.
        tensor_shapes: Their shapes.
        merge: `stack` puts them one under the other, `alternate` takes turns in blocks of 16 rows, padded with zeros;
            of one tensor, its halves. `by_heads` stacks them too, but the first has several parts head by head: the
            first part of all heads comes first, then the other tensors, then the other parts. `in_pairs` stacks them
            too, or parts the one in `sections`; heads of all but the last turn in pairs of neighbours, which kernels
            want apart. `keys_of_heads` and `values_of_heads` are a part of the rows of one tensor, that of each head,
            the former transposed.
        sections: Rows of what devices share out by heads, side by side.
        head_parts: For `by_heads` and matrices of heads: rows of each part of a head.
        pairs: For `by_heads`: the last part of a head turns in pairs of neighbours.
        head: Number of the head, of the matrix of one.
        turned: For `in_pairs`: rows of a head, and how many of them turn.
        scale: What every number is multiplied by.
        row_scales: How many rows are multiplied by what besides, from the first row of the first tensor on; empty for
            nothing.
        factors: Of experts: the tensor with what each is multiplied by, too; empty without one.
        multiple: The rows of each tensor are padded with zeros to a multiple of this.

    A tensor of more axes, the kernel of a convolution, is a matrix of its outputs. Of experts the shape is [E, N, K],
    and `tensors` and `tensor_shapes` are those of the first, then of the second, ...
    """

    role: Role
    layer: int | None
    format: str
    shape: tuple[int, ...]
    tensors: tuple[str, ...]
    tensor_shapes: tuple[tuple[int, ...], ...]
    merge: Merge = "stack"
    sections: tuple[int, ...] = ()
    head_parts: tuple[int, ...] = ()
    turned: tuple[int, int] = (0, 0)
    scale: float = 1.0
    multiple: int = 1
    factors: str = ""
    pairs: bool = False
    head: int = 0
    row_scales: tuple[tuple[int, float], ...] = ()

    @property
    def name(self) -> str:
        """Its name in the package."""
        return self.role.name_of(self.layer)

    @property
    def dtype(self) -> str:
        return DTYPES[self.format]

    def scales(self, factor: float = 1.0) -> Sequence[float | NDArray[np.float64]]:
        """Returns what multiplies each tensor, one number or one for each row [N, 1]; `factor` does so, too."""
        scale = self.scale * factor
        if not self.row_scales:
            return [scale] * len(self.tensors)
        rows = np.repeat([each for _, each in self.row_scales], [count for count, _ in self.row_scales])
        ends = np.cumsum([shape[0] for shape in self.tensor_shapes])
        return np.split(rows[:, None] * scale, ends[:-1])

    def matrices(self) -> Iterator[LinearSpec]:
        """Yields the matrix [N, K] of each expert; itself where there are none."""
        if len(self.shape) == 2:
            yield self
            return
        each = len(self.tensors) // self.shape[0]
        for head, first in enumerate(range(0, len(self.tensors), each)):
            part = slice(first, first + each)
            tensors, shapes = self.tensors[part], self.tensor_shapes[part]
            yield replace(self, shape=self.shape[1:], tensors=tensors, tensor_shapes=shapes, head=head)


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorSpec:
    """A dense fp32 vector: a norm's weight, or the biases of a merged Linear; attributes as those of `LinearSpec`.

    Of `experts` it is one for each, [E, N]; `lengths` are those of the tensors of one. `function` changes the numbers,
    then `offset` is added and `scale` multiplies. With `taps` it is [taps, N], of a tensor [N, 1, taps]; with
    `columns` tensors are matrices, whose rows are pairs of neighbours as `turned` says, and so is the result with
    `is_matrix`; `ahead` axes of 1 are before theirs; `ones` follow.
    """

    role: Role
    layer: int | None
    tensors: tuple[str, ...]
    lengths: tuple[int, ...]
    merge: Merge = "stack"
    sections: tuple[int, ...] = ()
    experts: int | None = None
    scale: float = 1.0
    offset: float = 0.0
    function: Function = "same"
    taps: int | None = None
    multiple: int = 1
    turned: tuple[int, int] = (0, 0)
    head_parts: tuple[int, ...] = ()
    pairs: bool = False
    columns: int | None = None
    is_matrix: bool = False
    ahead: int = 0
    ones: int = 0

    @property
    def name(self) -> str:
        """Its name in the package."""
        return self.role.name_of(self.layer)

    @property
    def shape(self) -> tuple[int, ...]:
        length = merged_length(self.lengths, self.merge, self.multiple) + self.ones
        if self.taps is not None:
            return (self.taps, length)
        if self.is_matrix and self.columns is not None:
            return (length // self.columns, self.columns)
        return (length,) if self.experts is None else (self.experts, length)

    @property
    def tensor_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of all `tensors`."""
        lengths = self.lengths * (self.experts or 1)
        if self.columns is not None:
            return tuple((1,) * self.ahead + (length // self.columns, self.columns) for length in lengths)
        return tuple((length,) if self.taps is None else (length, 1, self.taps) for length in lengths)


def tensors_in(specs: Iterable[LinearSpec | VectorSpec]) -> set[str]:
    """Returns the names of the tensors of a checkpoint that weights are made of."""
    return {tensor for spec in specs for tensor in spec.tensors}


class TensorSource(Protocol):
    """Where the numbers come from."""

    def check(self, specs: Sequence[LinearSpec | VectorSpec]) -> None:
        """Raises CheckpointError if a tensor of `specs` is missing or has another shape."""

    def matrix(self, name: str, shape: tuple[int, ...]) -> Matrix:
        """Returns a matrix tensor; of more axes as a matrix of its outputs."""

    def vector(self, spec: VectorSpec) -> NDArray[np.float32]:
        """Returns a vector, merged."""

    def packed(
        self, spec: LinearSpec, workers: ThreadPoolExecutor, on_saturated: Callable[[int], None]
    ) -> Iterator[NDArray[np.uint8]]:
        """Yields the packed bytes of a Linear weight in order."""


class CheckpointTensors:
    """Tensors of a checkpoint."""

    def __init__(self, checkpoint: TensorStore) -> None:
        self._checkpoint = checkpoint

    def check(self, specs: Sequence[LinearSpec | VectorSpec]) -> None:
        for spec in specs:
            for name, shape in zip(spec.tensors, spec.tensor_shapes, strict=True):
                self._checkpoint.check(name, shape)
            if isinstance(spec, LinearSpec) and spec.factors:
                self._checkpoint.check(spec.factors, spec.shape[:1])
            if isinstance(spec, LinearSpec) and (coded := self._coded(spec)) is not None:
                for name in spec.tensors:
                    coded.check_codes(name)

    def matrix(self, name: str, shape: tuple[int, ...]) -> Matrix:
        return TensorMatrix(self._checkpoint, name, shape)

    def vector(self, spec: VectorSpec) -> NDArray[np.float32]:
        parts = [FUNCTIONS[spec.function](self._checkpoint.read(name)).reshape(-1) for name in spec.tensors]
        if spec.taps is not None:
            return np.ascontiguousarray(np.concatenate(parts).reshape(-1, spec.taps).T)
        if spec.columns is not None and spec.turned[0]:
            parts = [part.reshape(-1, spec.columns)[:, pairs_apart(*spec.turned)].reshape(-1) for part in parts]
        parts = in_order(parts, spec.merge, spec.turned, spec.head_parts, spec.sections, spec.pairs)
        each = len(spec.lengths)
        if spec.ones:
            parts, each = [*parts, np.ones(spec.ones, np.float32)], each + 1
        vectors = [merged_vector(parts[at : at + each], spec.merge, spec.multiple) for at in range(0, len(parts), each)]
        return (np.stack(vectors).reshape(spec.shape) + np.float32(spec.offset)) * np.float32(spec.scale)

    def packed(
        self, spec: LinearSpec, workers: ThreadPoolExecutor, on_saturated: Callable[[int], None]
    ) -> Iterator[NDArray[np.uint8]]:
        factors = self._checkpoint.read(spec.factors) if spec.factors else itertools.repeat(1.0)
        for matrix, factor in zip(spec.matrices(), factors, strict=False):
            scales = matrix.scales(float(factor))
            tensors = list(zip(matrix.tensors, matrix.tensor_shapes, strict=True))
            if (coded := self._coded(matrix)) is not None:
                parts: list[Matrix] = [
                    CodeMatrix(coded, *pair, scale) for pair, scale in zip(tensors, scales, strict=True)
                ]
                yield from code_chunks(merged(matrix, parts), matrix.shape[1], workers)
            else:
                parts = [self.matrix(*pair) for pair in tensors]
                if any(np.any(scale != 1.0) for scale in scales):
                    parts = [Scaled(part, scale) for part, scale in zip(parts, scales, strict=True)]
                yield from packed_chunks(merged(matrix, parts), spec.format, workers, on_saturated)

    def _coded(self, spec: LinearSpec) -> CodeStore | None:
        """The checkpoint, where the codes of all tensors of a weight go into the package as they are."""
        store = self._checkpoint
        changed = spec.factors or spec.merge == "keys_of_heads"
        if spec.format != "linear_w4" or changed or not isinstance(store, (FourBitCheckpoint, DecodedTensors)):
            return None
        return store if all(store.has_codes(name) for name in spec.tensors) else None


class RandomTensors:
    """Random numbers of sensible size, a function of the seed and the name: a package for benchmarks.

    Quantised weights are drawn as codes and scales, so that no search is needed; a tied head is drawn apart from the
    embedding.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def check(self, specs: Sequence[LinearSpec | VectorSpec]) -> None:
        """Accepts everything."""

    def matrix(self, name: str, shape: tuple[int, ...]) -> Matrix:
        return RandomMatrix((shape[0], math.prod(shape[1:])), self._seed_of(name))

    def vector(self, spec: VectorSpec) -> NDArray[np.float32]:
        if spec.role.kind in ("norm", "factors", "least", "most") and spec.role != POSITIONS:
            below = spec.role.kind == "least" or spec.function == "minus_exp"
            return np.full(spec.shape, -spec.scale if below else spec.scale, np.float32)
        deviation = np.float32(1.0 if spec.role == SINKS else 0.02)  # sinks are scores
        return np.random.default_rng(self._seed_of(spec.name)).standard_normal(spec.shape, np.float32) * deviation

    def packed(
        self, spec: LinearSpec, workers: ThreadPoolExecutor, on_saturated: Callable[[int], None]
    ) -> Iterator[NDArray[np.uint8]]:
        seed = self._seed_of(spec.name)
        for index, matrix in enumerate(spec.matrices()):
            shape = matrix.shape[0], matrix.shape[1]
            own = seed if matrix is spec else [*seed, index]
            if is_quantized(spec.format):
                yield from random_chunks(shape, spec.format, own, workers)
            else:
                yield from packed_chunks(RandomMatrix(shape, own), spec.format, workers, on_saturated)

    def _seed_of(self, name: str) -> list[int]:
        return [self._seed, zlib.crc32(name.encode())]
