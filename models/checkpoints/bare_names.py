"""Checkpoints whose names differ from those of their family: without what they begin with, or in a part of them.

Those of a model without its head lack the beginning.
"""

from __future__ import annotations

from pathlib import Path

from .checkpoint import Checkpoint

# What names begin with in such files -> what is before it in others.
_BARE = {"wte.": "transformer.", "word_embeddings.": "transformer.", "decoder.embed_tokens.": "model."}
_HEAD = "lm_head."
# Norms of Falcon 40B -> what the same are called in smaller ones.
_PARTS = {".ln_attn.": ".input_layernorm.", ".ln_mlp.": ".post_attention_layernorm."}


class BareTensors(Checkpoint):
    """Such a checkpoint, under the names that those of the whole model have."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._prefix = _prefix_of(self)
        self._parts = {own: stored for stored, own in _PARTS.items() if _has_part(self, stored)}

    @staticmethod
    def fits(checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint has such names."""
        return bool(_prefix_of(checkpoint)) or any(_has_part(checkpoint, part) for part in _PARTS)

    def names(self) -> list[str]:
        names = [name if name.startswith(_HEAD) else self._prefix + name for name in super().names()]
        for own, stored in self._parts.items():
            names = [name.replace(stored, own) for name in names]
        return names

    def stored_name(self, name: str) -> str:
        for own, stored in self._parts.items():
            name = name.replace(own, stored)
        return name if name.startswith(_HEAD) else name.removeprefix(self._prefix)


def _prefix_of(checkpoint: Checkpoint) -> str:
    names = Checkpoint.names(checkpoint)
    return next((prefix for bare, prefix in _BARE.items() if any(name.startswith(bare) for name in names)), "")


def _has_part(checkpoint: Checkpoint, part: str) -> bool:
    return any(part in name for name in Checkpoint.names(checkpoint))
