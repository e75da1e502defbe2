"""Qwen2-VL, 2B to 72B, and MinerU2.5: the language model of Qwen2.5-VL under another vision tower."""

from __future__ import annotations

from dataclasses import replace

from ..towers.qwen2 import QWEN2_VL
from . import qwen2_5_vl

FAMILY = replace(
    qwen2_5_vl.FAMILY,
    model_type="qwen2_vl",
    architecture="Qwen2VLForConditionalGeneration",
    title="Qwen2-VL",
    gguf=None,
    models="Qwen2-VL 2B, 7B, 72B, MinerU2.5",
    has="as Qwen2.5-VL",
    vision=QWEN2_VL,
)
