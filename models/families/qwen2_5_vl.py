"""Qwen2.5-VL, 3B to 72B: the language model of Qwen2.5, with three positions for each token."""

from __future__ import annotations

from ..common.config_keys import Key
from ..common.config_rules import axes_in_blocks, window_of_some_layers
from ..family import Family, Gguf
from ..towers.qwen2_5 import QWEN2_5_VL
from . import qwen2
from .shared.dense import KEYS, TENSORS
from .shared.vision_language import CONTRACT, TINY

FAMILY = Family(
    model_type="qwen2_5_vl",
    architecture="Qwen2_5_VLForConditionalGeneration",
    title="Qwen2.5-VL",
    models="Qwen2.5-VL 3B, 7B, 32B, 72B",
    has="as Qwen2.5; positions in time, height and width, `mrope_section` in blocks",
    keys=(*KEYS, Key("rms_norm_eps", "number", absent=1e-5), Key("max_position_embeddings", absent=32768)),
    window=window_of_some_layers,
    layer=qwen2.FAMILY.layer,
    tensors=TENSORS,
    contract=CONTRACT,
    gguf=Gguf(arch="qwen2vl"),  # of Qwen2-VL too, whose language model is the same
    rope_theta=1000000.0,
    rope_types={"mrope": "default"},
    axes=axes_in_blocks,
    nested="text_config",
    vision=QWEN2_5_VL,
    tiny={
        **{key: value for key, value in TINY.items() if key != "head_dim"},
        "hidden_size": 384,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
    },
)
