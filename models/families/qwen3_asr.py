"""Qwen3-ASR 0.6B and 1.7B: the language model of Qwen3, whose prompt has rows of a sound among its embeddings.

Its files give RoPE three axes (`mrope_section`), whose positions are equal in text and sound: one position is enough.
"""

from __future__ import annotations

from dataclasses import replace

from ..speech_language import CONTRACT
from . import qwen3

FAMILY = replace(
    qwen3.FAMILY,
    model_type="qwen3_asr",
    architecture="Qwen3ASRForConditionalGeneration",
    title="Qwen3-ASR",
    models="Qwen3-ASR 0.6B, 1.7B",
    has="as Qwen3; an [encoder of sounds](compile.md#speech)",
    contract=CONTRACT,
    gguf=None,
    nested="thinker_config.text_config",
)
