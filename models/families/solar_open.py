"""Solar Open: the experts of GLM-4 MoE in every layer, behind Llama's attention."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Attention, Block
from ..common.config_keys import Key
from ..model_config import ModelConfig
from . import glm4_moe
from .shared.deepseek_experts import EXPERT_TINY, expert_keys, mlp_or_experts
from .shared.dense import KEYS, TINY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(qkv_bias=config.flags["attention_bias"]), mlp_or_experts(config, dense=False)


FAMILY = replace(
    glm4_moe.FAMILY,
    model_type="solar_open",
    architecture="SolarOpenForCausalLM",
    title="Solar Open",
    models="Solar Open 100B",
    has="`attention_bias` on q, k, v; in every layer experts as GLM-4 MoE",
    keys=(
        *KEYS,
        # Only layers of other models have an MLP for every token.
        Key("intermediate_size", absent=1280),
        Key("num_key_value_heads", absent=8),
        Key("head_dim", absent=128),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
        Key("attention_bias", "flag", absent=False),
        *expert_keys(inner=1280),
    ),
    layer=_layer,
    gguf=None,
    rotary=None,
    rope_theta=1e6,
    tiny={
        **{key: value for key, value in TINY.items() if key != "intermediate_size"},
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "attention_bias": True,
        **{key: value for key, value in EXPERT_TINY.items() if key != "first_k_dense_replace"},
    },
)
