"""Such a tower in a checkpoint that has a language model as well."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...common.checkpoint import FLOATS, Checkpoint
from ...common.errors import CheckpointError
from ...common.language_tensors import PROJECTORS, VISION

_PROJECTOR = "projector."


class GridTensors(Checkpoint):
    """The tower alone: names without what those of all its tensors begin with; `projector.` is what is beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        found = (
            prefix for prefix in VISION if any(name.startswith(prefix) for name in super(GridTensors, self).names())
        )
        prefix = next(found, None)
        if prefix is None:
            *others, last = (f"{prefix}*" for prefix in VISION)
            raise CheckpointError(
                f"--vision: {folder} has no tensors {', '.join(others)} or {last}; expected the "
                "checkpoint of the whole model, with its vision tower"
            )
        self._prefix = prefix
        everything = super().names()
        beside = (prefix for prefix in PROJECTORS if any(name.startswith(prefix) for name in everything))
        self._projector = next(beside, PROJECTORS[0])

    def __contains__(self, name: str) -> bool:
        return super().__contains__(self._stored(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        return super().shape(self._stored(name))

    def check(self, name: str, shape: Sequence[int], dtypes: Sequence[str] = FLOATS) -> None:
        """As `Checkpoint.check`."""
        super().check(self._stored(name), shape, dtypes)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """As `Checkpoint.read`."""
        return super().read(self._stored(name), start, stop)

    def _stored(self, name: str) -> str:
        if name.startswith(_PROJECTOR):
            return self._projector + name.removeprefix(_PROJECTOR)
        return self._prefix + name
