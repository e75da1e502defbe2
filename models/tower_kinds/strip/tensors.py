"""Such a tower in a checkpoint that has a language model as well."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...checkpoints.checkpoint import FLOATS, Checkpoint
from ...checkpoints.language_tensors import STRIPS
from ...common.errors import CheckpointError


class StripTensors(Checkpoint):
    """All tensors under their names, and parts of them under names with a view behind a colon.

    `NAME:q`, `NAME:k` and `NAME:v` are the first, the second and the last third of the rows; `NAME:turned` is a matrix
    with rows for columns.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not any(name.startswith(STRIPS) for name in super().names()):
            raise CheckpointError(
                f"--vision: {folder} has no tensors {' or '.join(f'{prefix}*' for prefix in STRIPS)}; expected the "
                "checkpoint of the whole model, with its vision tower"
            )

    def check(self, name: str, shape: Sequence[int], dtypes: Sequence[str] = FLOATS) -> None:
        stored, view = _parts(name)
        whole = tuple(shape)
        if view == "turned":
            whole = whole[::-1]
        elif view:
            whole = (3 * whole[0], *whole[1:])
        super().check(stored, whole, dtypes)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        stored, view = _parts(name)
        if not view:
            return super().read(name, start, stop)
        if view == "turned":
            return np.ascontiguousarray(super().read(stored)[:, start:stop].T)
        rows = super().shape(stored)[0] // 3
        first = "qkv".index(view) * rows
        return super().read(stored, first + start, first + (rows if stop is None else min(stop, rows)))


def _parts(name: str) -> tuple[str, str]:
    """What is stored, and how it is seen."""
    stored, _, view = name.partition(":")
    return stored, view
