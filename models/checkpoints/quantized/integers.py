"""Weights of small integers with scales and zeros for groups of inputs, as compressed-tensors stores them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.weight_format import GROUP

from ...common.errors import CheckpointError
from ..checkpoint import Checkpoint
from .scales import BlockScales, spread

PACKED, ZEROS, SHAPE, ORDER = "_packed", "_zero_point", "_shape", "_g_idx"
_MOST_INPUTS = 1 << 24


@dataclass(frozen=True, slots=True)
class IntegerTensor:
    """A weight [N, K] in integers; as `store.Coded`.

    A value is (code - zero) * scale. Packed codes are int32 words of N rows, the lowest bits first, each code raised by
    half of its range; packed zeros are words of several outputs of a group.

    Attributes:
        store: Has it.
        name: `MODULE.weight`, with which the names of its parts begin.
        bits: Of a code.
        scales: Of groups.
        symmetric: It has no zeros.
    """

    store: Checkpoint
    name: str
    bits: int
    scales: BlockScales
    symmetric: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the floats."""
        return self.scales.shape

    def check(self) -> None:
        outputs, inputs = self.shape
        if self._packed:
            self.store.check(self.name + PACKED, (outputs, -(-inputs // self._per_word)), ("I32",))
        else:
            self.store.check(self.name, (outputs, inputs), ("I8",))
        self.scales.check()
        groups = -(-inputs // self.scales.block[1])
        if self._has_zeros:
            if self._packed:
                self.store.check(self.name + ZEROS, (-(-outputs // self._per_word), groups), ("I32",))
            else:
                self._plain_zeros.check()
        if self.name + ORDER in self.store:
            self.store.check(self.name + ORDER, (inputs,), ("I32", "I64"))
        if (order := self._order()) is not None and order.max() >= groups:
            raise CheckpointError(
                f"{self.store.where(self.name + ORDER)} names groups up to {order.max()}, expected them below {groups}"
            )

    def rows(self, several: tuple[int, ...], start: int, stop: int) -> NDArray[np.float32]:
        order, inputs = self._order(), self.shape[1]
        codes = self._codes(start, stop).astype(np.float32)
        if self._has_zeros and self._packed:
            codes -= spread(self._packed_zeros(start, stop), self.scales.block[1], inputs, order)
        elif self._has_zeros:
            codes -= self._plain_zeros.rows(several, start, stop, order)
        return codes * self.scales.rows(several, start, stop, order)

    def fits_four_bits(self) -> bool:
        """Whether our 4-bit format can hold codes and scales as they are."""
        outputs, inputs = self.shape
        if self.bits != 4 or self._has_zeros or self._order() is not None:
            return False
        if self.scales.block[0] != 1 or self.scales.block[1] % GROUP or inputs % self.scales.block[1]:
            return False
        scales = self._group_scales(0, outputs)
        with np.errstate(over="ignore"):
            return bool((scales.astype(np.float16) == scales).all())

    def codes(self, start: int, stop: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        """Returns codes [stop - start, K] in -8..7 and scales [stop - start, K / 64], where they fit four bits."""
        scales = self._group_scales(start, stop).astype(np.float16)
        codes = np.ascontiguousarray(self._codes(start, stop))
        return codes, np.repeat(scales, self.scales.block[1] // GROUP, axis=1)

    def _group_scales(self, start: int, stop: int) -> NDArray[np.float32]:
        """[stop - start, groups]."""
        groups = np.arange(self.shape[1] // self.scales.block[1], dtype=np.int32)
        return self.scales.rows((), start, stop, groups)

    @property
    def _packed(self) -> bool:
        return self.name + PACKED in self.store

    @property
    def _per_word(self) -> int:
        return 32 // self.bits

    @property
    def _has_zeros(self) -> bool:
        return not self.symmetric or self.name + ZEROS in self.store

    def _codes(self, start: int, stop: int) -> NDArray[np.int8]:
        if not self._packed:
            return self.store.part(self.name, (slice(start, stop),))
        words = self.store.part(self.name + PACKED, (slice(start, stop),))
        return self._unpacked(words).reshape(stop - start, -1)[:, : self.shape[1]]

    @property
    def _plain_zeros(self) -> BlockScales:
        return replace(self.scales, name=self.name + ZEROS, dtypes=("I8",), zeros=True)

    def _packed_zeros(self, start: int, stop: int) -> NDArray[np.float32]:
        """[stop - start, groups]."""
        first = start // self._per_word
        words = self.store.part(self.name + ZEROS, (slice(first, -(-stop // self._per_word)),))
        zeros = self._unpacked(words).transpose(0, 2, 1).reshape(-1, words.shape[1])
        return zeros[start - first * self._per_word : stop - first * self._per_word].astype(np.float32)

    def _unpacked(self, words: NDArray[np.int32]) -> NDArray[np.int8]:
        """[a, b] -> [a, b, codes of a word]."""
        shifts = np.arange(0, 32, self.bits, dtype=np.uint32)
        codes = (np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts) & ((1 << self.bits) - 1)
        return (codes.astype(np.int16) - (1 << (self.bits - 1))).astype(np.int8)

    def _order(self) -> NDArray[np.int32] | None:
        """The group of each input; None where they lie side by side, as they do where a file says -1."""
        if self.name + ORDER not in self.store:
            return None
        order = self.store.part(self.name + ORDER, (slice(None),)).astype(np.int32)
        return None if order.size and order.min() < 0 else order


def packed_shape(store: Checkpoint, name: str) -> tuple[int, int]:
    """Returns [N, K] as the file says it of packed codes; CheckpointError if it is none."""
    store.check(name + SHAPE, (2,), ("I64", "I32"))
    outputs, inputs = (int(size) for size in store.part(name + SHAPE, (slice(None),)))
    rows = store.shape(name + PACKED)[0]
    if outputs != rows or not 0 < inputs <= _MOST_INPUTS:
        raise CheckpointError(f"{store.where(name + SHAPE)} says [{outputs}, {inputs}], expected [{rows}, the inputs]")
    return outputs, inputs
