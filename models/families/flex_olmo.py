"""FlexOlmo: OLMo 2 with the experts of OLMoE."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Attention, Block, Moe
from ..common.config_keys import Key
from ..model_config import ModelConfig
from . import olmoe
from .shared.dense import NORMS_BEHIND


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    attention = Attention(wide_norm=True, qkv_bias=bias, out_bias=bias, in_norm=False, out_norm=True)
    normalise = config.flags["norm_topk_prob"]
    return attention, Moe(order="softmax_topk", normalise=normalise, in_norm=False, out_norm=True)


_OLMOE = olmoe.FAMILY
FAMILY = replace(
    _OLMOE,
    model_type="flex_olmo",
    architecture="FlexOlmoForCausalLM",
    title="FlexOlmo",
    models="FlexOlmo 7x7B",
    has="as OLMoE, with norms after attention and experts, none before",
    keys=(
        *_OLMOE.keys,
        Key("rms_norm_eps", "number", absent=1e-6),
        Key("num_experts", absent=7, also="num_local_experts"),
        Key("num_experts_per_tok", absent=5),
    ),
    layer=_layer,
    tensors={**_OLMOE.tensors, **NORMS_BEHIND},
    gguf=None,
    rope_theta=500000.0,
    tiny={**_OLMOE.tiny, "rope_theta": 5e5, "attention_bias": True},
    other_values=True,
)
