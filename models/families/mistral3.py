"""Ministral 3 and Mistral Small 3.1 and 3.2 as released: the language model of a checkpoint that also has a tower."""

from __future__ import annotations

from dataclasses import replace

from . import ministral3

FAMILY = replace(
    ministral3.FAMILY,
    model_type="mistral3",
    architecture="Mistral3ForConditionalGeneration",
    title="Mistral 3",
    gguf=None,
    models="Ministral 3 3B, 8B, 14B, Mistral Small 3.1 and 3.2, the language model",
    has="as Mistral or Ministral 3",
    nested="text_config",
    rope_scaling={},
)
