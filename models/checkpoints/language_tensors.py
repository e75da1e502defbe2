"""The language model in a checkpoint that has an encoder for images or sounds as well, or no head."""

from __future__ import annotations

from pathlib import Path

from .checkpoint import Checkpoint

# What names of its layers begin with, in some files.
_LANGUAGE = ("model.language_model.", "language_model.model.", "thinker.model.", "llm.model.")
VISION = ("model.visual.", "visual.", "thinker.visual.")  # and those of its vision tower
PROJECTORS = ("model.projector.", "mlp_AR.")  # what makes tokens of its patches, where that is beside it
VOICE = ("talker.", "code2wav.")  # and of models that speak
STRIPS = ("model.vision_tower.", "model.merger.", "vpm.", "resampler.")  # or of a tower as SigLIP's
_OTHER_TOWERS = ("vision_tower.", "vision_model.", "model.embed_vision.", "model.embed_audio.")
_SOUND = (
    "model.audio_tower.",
    "model.multi_modal_projector.",
    "audio_tower.",
    "multi_modal_projector.",
    "thinker.audio_tower.",
)
_OWN = "model."  # in the others, but for those that were saved without a head, as embedding models are:
_BARE = "embed_tokens."
_HEAD, _CLASSES = "lm_head.", "score."
_HEADS = {
    "thinker.model.": "thinker.lm_head.",
    "llm.model.": "llm.lm_head.",
    "language_model.model.": "language_model.lm_head.",
}


class LanguageTensors(Checkpoint):
    """The language model alone, under the names that a checkpoint of text has."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._prefix = "" if _has(self, _BARE) else next((p for p in _LANGUAGE if _has(self, p)), _OWN)
        usual = _HEADS.get(self._prefix, _HEAD)
        self._head = next((head for head in (usual, _HEAD, _CLASSES) if _has(self, head)), usual)

    @staticmethod
    def fits(checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint has an encoder, names its layers as those that have one, or has no prefix at all."""
        return any(_has(checkpoint, prefix) for prefix in (*_LANGUAGE, *VISION, *STRIPS, _BARE))

    def names(self) -> list[str]:
        towers = (*VISION, *PROJECTORS, *STRIPS, *_OTHER_TOWERS, *_SOUND)
        names = [name for name in super().names() if not name.startswith(towers)]
        if not self._prefix:
            return [name if name.startswith(_HEAD) else _OWN + name for name in names]
        for stored, own in ((self._prefix, _OWN), (self._head, _HEAD)):
            names = [own + name.removeprefix(stored) if name.startswith(stored) else name for name in names]
        return names

    def stored_name(self, name: str) -> str:
        if name.startswith(_HEAD):
            return self._head + name.removeprefix(_HEAD)
        return self._prefix + name.removeprefix(_OWN) if name.startswith(_OWN) else name


def _has(checkpoint: Checkpoint, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in Checkpoint.names(checkpoint))
