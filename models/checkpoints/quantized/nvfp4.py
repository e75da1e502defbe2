"""Weights in NVFP4: two codes of E2M1 a byte, the lower half first; a scale in E4M3 for 16 inputs, and one for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ..checkpoint import FLOATS, Checkpoint
from .scales import E2M1, E4M3, BlockScales, checked, nibbles, numbers

GROUP = 16


@dataclass(frozen=True, slots=True)
class Nvfp4Tensor:
    """A weight [N, K]; as `store.Coded`.

    Attributes:
        store: Has it.
        name: Of its codes, uint8 [N, K / 2].
        scales: Of groups, [N, K / 16].
        whole: Name of the scale of all.
        divides: That scale divides, as in compressed-tensors; else it multiplies, as in ModelOpt.
    """

    store: Checkpoint
    name: str
    scales: str
    whole: str
    divides: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the floats."""
        outputs, half = self.store.shape(self.name)
        return outputs, 2 * half

    def check(self) -> None:
        self.store.check(self.name, self.store.shape(self.name), ("U8",))
        if self.shape[1] % GROUP:
            raise CheckpointError(
                f"{self.store.where(self.name)} stands for {self.shape[1]} inputs, expected a multiple of {GROUP}"
            )
        self._groups.check()
        self.store.check(self.whole, (1,), FLOATS)
        self._factor()

    def rows(self, several: tuple[int, ...], start: int, stop: int) -> NDArray[np.float32]:
        codes = nibbles(self.store.part(self.name, (slice(start, stop),)), low_first=True)
        scales = self._groups.rows(several, start, stop)
        return E2M1[codes] * (scales / self._factor() if self.divides else scales * self._factor())

    @property
    def _groups(self) -> BlockScales:
        # The scale of a group of small numbers may be rounded to zero.
        return BlockScales(self.store, self.scales, self.shape, (1, GROUP), (E4M3,), zeros=True)

    def _factor(self) -> NDArray[np.float32]:
        return checked(self.store, self.whole, numbers(self.store, self.whole, (slice(None),)))
