"""GLM-OCR: the layers of GLM-4, with three positions for each token."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import axes_in_blocks
from ..contract import Port
from ..family import Family
from ..model_config import ModelConfig
from ..towers.glm import GLM_OCR
from . import glm4
from .shared import dense
from .shared.vision_language import TINY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(out_norm=True), Mlp(out_norm=True)


FAMILY = Family(
    model_type="glm_ocr",
    architecture="GlmOcrForConditionalGeneration",
    title="GLM-OCR",
    models="GLM-OCR",
    has="as GLM-4, without biases; positions in time, height and width in one input, `mrope_section` in blocks",
    keys=(*dense.KEYS, Key("rms_norm_eps", "number", absent=1e-5), Key("max_position_embeddings", absent=131072)),
    layer=_layer,
    tensors=glm4.FAMILY.tensors,
    contract=replace(dense.CONTRACT, axes=(Port("axes_position_ids", "position_ids", ""),)),
    axes=axes_in_blocks,
    rotary=1.0,
    nested="text_config",
    vision=GLM_OCR,
    tiny={
        **TINY,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            "mrope_section": [8, 8, 8],
        },
    },
    other_values=True,
)
