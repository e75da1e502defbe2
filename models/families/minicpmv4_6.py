"""MiniCPM-V 4.6: the language model of Qwen3.5, whose prompt has rows of images among its embeddings.

Its program gives every token one position along the three axes: images have no rows and columns there.
"""

from __future__ import annotations

from dataclasses import replace

from ..towers.minicpm import MINICPM_V_4_6
from . import qwen3_5

FAMILY = replace(
    qwen3_5.FAMILY,
    model_type="minicpmv4_6",
    architecture="MiniCPMV4_6ForConditionalGeneration",
    text_architecture="",
    title="MiniCPM-V 4.6",
    gguf=None,
    models="MiniCPM-V 4.6",
    has="as Qwen3.5",
    vision=MINICPM_V_4_6,
    tiny={**qwen3_5.FAMILY.tiny, "insert_layer_id": 1},
)
