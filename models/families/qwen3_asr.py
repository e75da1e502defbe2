"""Qwen3-ASR 0.6B and 1.7B: the language model of Qwen3, whose prompt has rows of a sound among its embeddings.

Its files give RoPE three axes (`mrope_section`), whose positions are equal in text and sound: one position is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.config_keys import Only, read_keys, size
from ..sounds.qwen3 import QWEN3_ASR
from . import qwen3
from .shared.speech_language import CONTRACT

_ALIGNER = "Qwen3ASRForTokenClassification"


def _classes(raw: Mapping[str, Any]) -> int | None:
    """Of the forced aligner, in files of Qwen and in those of transformers."""
    thinker = raw.get("thinker_config")
    if isinstance(thinker, Mapping) and "forced_aligner" in str(thinker.get("model_type")):
        return size("classify_num", thinker.get("classify_num"))
    if _ALIGNER not in (raw.get("architectures") or ()):
        return None
    read_keys((Only("token_classification_bias", False),), raw, "Qwen3-ForcedAligner")
    labels = raw.get("id2label")
    # transformers does not write the two labels that are its default.
    return size("num_labels", raw.get("num_labels", len(labels) if isinstance(labels, Mapping) else 2))


FAMILY = replace(
    qwen3.FAMILY,
    model_type="qwen3_asr",
    architecture="Qwen3ASRForConditionalGeneration",
    title="Qwen3-ASR",
    models="Qwen3-ASR 0.6B, 1.7B, Qwen3-ForcedAligner 0.6B",
    has="as Qwen3; an [encoder of sounds](speech.md#qwen3-asr); a forced aligner sorts tokens into times",
    contract=CONTRACT,
    sound=QWEN3_ASR,
    gguf=None,
    nested="thinker_config.text_config",
    classes=_classes,
    classifier=_ALIGNER,
)
