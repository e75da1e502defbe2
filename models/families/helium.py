"""Helium 1, 2B: Llama's layers, whose heads turn in pairs of neighbours, as ERNIE 4.5's do."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family
from ..model_config import ModelConfig
from .shared.dense import BIASES, KEYS, QKV_IN_PAIRS, TENSORS, TINY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(qkv_bias=config.flags["attention_bias"]), Mlp(bias=config.flags["mlp_bias"])


FAMILY = Family(
    model_type="helium",
    architecture="HeliumForCausalLM",
    title="Helium",
    models="Helium 1, 2B",
    has="as Llama; RoPE rotates pairs of neighbours; `attention_bias` on q, k, v",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=20),
        Key("head_dim", absent=128),
        Key("rms_norm_eps", "number", absent=1e-8),
        Key("max_position_embeddings", absent=4096),
        *BIASES,
    ),
    layer=_layer,
    tensors={**TENSORS, **QKV_IN_PAIRS},
    rope_theta=100000.0,
    tiny={**TINY, "head_dim": 32, "rms_norm_eps": 1e-8, "attention_bias": True, "mlp_bias": True},
    other_values=True,
)
