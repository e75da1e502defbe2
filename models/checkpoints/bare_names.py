"""Checkpoints with other names than those of their family.

Those saved without a head lack the prefix of names; those of large Falcon models call two norms differently, and those
of Kimi Linear that transformers saved its dense MLPs.
"""

from __future__ import annotations

from pathlib import Path

from .checkpoint import Checkpoint

# How names begin in such files -> the prefix that they lack.
_BARE = {
    "wte.": "transformer.",
    "tokens_embed.": "transformer.",
    "word_embeddings.": "transformer.",
    "decoder.embed_tokens.": "model.",
}
_HEAD = "lm_head."
# Norms of Falcon 40B -> what the same are called in smaller ones; dense MLPs of Kimi Linear as transformers saves them
# -> what its own files call them.
_PARTS = {".ln_attn.": ".input_layernorm.", ".ln_mlp.": ".post_attention_layernorm."}
_PARTS |= {f".block_sparse_moe.{part}_proj.": f".mlp.{part}_proj." for part in ("gate", "up", "down")}


class BareTensors(Checkpoint):
    """Such a checkpoint, under the names of its family."""

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
