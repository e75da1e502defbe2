"""GLM-ASR Nano: a Llama whose prompt has rows of a sound among its embeddings."""

from __future__ import annotations

from dataclasses import replace

from ..sounds.glm import GLM_ASR
from . import llama
from .shared.speech_language import CONTRACT

FAMILY = replace(
    llama.FAMILY,
    model_type="glmasr",
    architecture="GlmAsrForConditionalGeneration",
    title="GLM-ASR",
    models="GLM-ASR Nano 2512",
    has="as Llama; an [encoder of sounds](speech.md#glm-asr)",
    contract=CONTRACT,
    sound=GLM_ASR,
    gguf=None,
    nested="text_config",
)
