"""PaddleOCR-VL: the language model of ERNIE 4.5 with rotations of halves, and three positions for each token."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import axes_in_blocks
from ..family import Family
from ..model_config import ModelConfig
from ..towers.paddleocr import PADDLEOCR_VL
from . import ernie4_5
from .shared.dense import TENSORS
from .shared.vision_language import CONTRACT, TINY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["use_bias"]
    return Attention(qkv_bias=bias, out_bias=bias), Mlp(bias=bias)


FAMILY = Family(
    model_type="paddleocr_vl",
    architecture="PaddleOCRVLForConditionalGeneration",
    title="PaddleOCR-VL",
    models="PaddleOCR-VL 0.9B, 1.6",
    has="`use_bias` on all Linears; positions in time, height and width, `mrope_section` in blocks",
    keys=(*ernie4_5.KEYS, Key("use_bias", "flag", absent=False)),
    layer=_layer,
    tensors=TENSORS,
    contract=CONTRACT,
    rope_theta=500000.0,
    axes=axes_in_blocks,
    nested="text_config",
    vision=PADDLEOCR_VL,
    tiny={
        **TINY,
        "tie_word_embeddings": True,
        "use_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "mrope_section": [8, 12, 12]},
    },
)
