"""MiniCPM-V 4.5: the language model of Qwen3, whose prompt has rows of images among its embeddings."""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Only
from ..towers.minicpm import MINICPM_V_4_5
from . import qwen3

FAMILY = replace(
    qwen3.FAMILY,
    model_type="minicpmv",
    architecture="MiniCPMV",
    title="MiniCPM-V 4.5",
    models="MiniCPM-V 4.5",
    has="as Qwen3; `version` 4.5, others of this `model_type` have other language models",
    keys=(*qwen3.FAMILY.keys, Only("version", 4.5)),
    gguf=None,
    vision=MINICPM_V_4_5,
    tiny={**qwen3.FAMILY.tiny, "version": 4.5, "query_num": 8, "hidden_size": 256},
)
