"""Checkpoints of a model without its head, whose names lack what those of the whole model begin with."""

from __future__ import annotations

from pathlib import Path

from .checkpoint import Checkpoint

# What names begin with in such files -> what is before it in others.
_BARE = {"wte.": "transformer.", "word_embeddings.": "transformer.", "decoder.embed_tokens.": "model."}
_HEAD = "lm_head."


class BareTensors(Checkpoint):
    """Such a checkpoint, under the names that those of the whole model have."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._prefix = _prefix_of(self)

    @staticmethod
    def fits(checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint has such names."""
        return bool(_prefix_of(checkpoint))

    def names(self) -> list[str]:
        return [name if name.startswith(_HEAD) else self._prefix + name for name in super().names()]

    def stored_name(self, name: str) -> str:
        return name if name.startswith(_HEAD) else name.removeprefix(self._prefix)


def _prefix_of(checkpoint: Checkpoint) -> str:
    names = Checkpoint.names(checkpoint)
    return next((prefix for bare, prefix in _BARE.items() if any(name.startswith(bare) for name in names)), "")
