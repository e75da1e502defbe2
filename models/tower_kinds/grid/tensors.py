"""Such a tower in a checkpoint that has a language model as well."""

from __future__ import annotations

from pathlib import Path

from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.language_tensors import PROJECTORS, VISION
from ...common.errors import CheckpointError

_PROJECTOR = "projector."


class GridTensors(Checkpoint):
    """The tower alone: names without what those of all its tensors begin with; `projector.` is what is beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        names = self.names()
        prefix = next((prefix for prefix in VISION if any(name.startswith(prefix) for name in names)), None)
        if prefix is None:
            *others, last = (f"{prefix}*" for prefix in VISION)
            raise CheckpointError(
                f"--vision: {folder} has no tensors {', '.join(others)} or {last}; expected the "
                "checkpoint of the whole model, with its vision tower"
            )
        self._prefix = prefix
        beside = (prefix for prefix in PROJECTORS if any(name.startswith(prefix) for name in names))
        self._projector = next(beside, PROJECTORS[0])

    def stored_name(self, name: str) -> str:
        if name.startswith(_PROJECTOR):
            return self._projector + name.removeprefix(_PROJECTOR)
        return self._prefix + name
