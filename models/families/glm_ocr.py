"""GLM-OCR: norms before and behind attention and MLP, heads that turn in pairs of neighbours, three positions."""

from __future__ import annotations

from dataclasses import replace

from .. import dense
from ..blocks import Attention, Block, Mlp
from ..common import roles
from ..common.config_keys import Key
from ..common.config_rules import axes_in_blocks, no_window
from ..contract import Port
from ..family import Family, Tensors
from ..model_config import ModelConfig
from ..towers.glm import GLM_OCR
from ..vision_language import TINY

_LAYER = "model.layers.{layer}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(out_norm=True), Mlp(out_norm=True)


FAMILY = Family(
    model_type="glm_ocr",
    architecture="GlmOcrForConditionalGeneration",
    title="GLM-OCR",
    models="GLM-OCR",
    has="norms before and behind attention and MLP; heads turn in pairs of neighbours, in part by "
    "`partial_rotary_factor`; positions in time, height and width in one input, `mrope_section` in blocks",
    keys=(
        *dense.KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
    ),
    window=no_window,
    layer=_layer,
    tensors={
        **dense.TENSORS,
        roles.QKV: replace(dense.TENSORS[roles.QKV], transform="in_pairs"),
        roles.ATTENTION_OUT_NORM: Tensors("plain", (f"{_LAYER}.post_self_attn_layernorm.weight",)),
        roles.GATE_UP: Tensors("alternate", (f"{_LAYER}.mlp.gate_up_proj.weight",)),
        roles.MLP_OUT_NORM: Tensors("plain", (f"{_LAYER}.post_mlp_layernorm.weight",)),
    },
    contract=replace(dense.CONTRACT, axes=(Port("axes_position_ids", "position_ids", ""),)),
    axes=axes_in_blocks,
    rotary=1.0,
    nested="text_config",
    vision=GLM_OCR,
    tiny={
        **TINY,
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            "mrope_section": [8, 8, 8],
        },
    },
)
