"""Seed-OSS 36B: Llama with biases on q, k and v, and heads whose size is given."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import KEYS, TENSORS, TINY, hidden_per_head


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = Attention(qkv_bias=flags["attention_bias"], out_bias=flags["attention_out_bias"])
    return attention, Mlp(bias=flags["mlp_bias"])


FAMILY = Family(
    model_type="seed_oss",
    architecture="SeedOssForCausalLM",
    title="Seed-OSS",
    models="Seed-OSS-36B",
    has="`attention_bias` on q, k, v and `attention_out_bias` on o; `mlp_bias` on gate, up, down",
    keys=(
        *KEYS,
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("max_position_embeddings", absent=524288),
        Key("attention_bias", "flag", absent=True),
        Key("attention_out_bias", "flag", absent=False),
        Key("mlp_bias", "flag", absent=False),
    ),
    layer=_layer,
    tensors=TENSORS,
    gguf=Gguf(arch="seed_oss", names={"post_attention_norm": "post_attention_layernorm"}),
    tiny={**TINY, "head_dim": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e7},
)
