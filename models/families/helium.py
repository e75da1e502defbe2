"""Helium 1, 2B: Llama's layers, whose heads turn in pairs of neighbours, as ERNIE 4.5's do."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import no_window
from ..family import Family
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import BIASES, CONTRACT, KEYS, TENSORS, TINY


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
    window=no_window,
    layer=_layer,
    tensors={
        **TENSORS,
        **{role: replace(TENSORS[role], transform="in_pairs") for role in (roles.QKV, roles.QKV_BIAS)},
    },
    contract=CONTRACT,
    rope_theta=100000.0,
    tiny={
        **TINY,
        "head_dim": 32,
        "rms_norm_eps": 1e-8,
        "tie_word_embeddings": False,
        "attention_bias": True,
        "mlp_bias": True,
    },
    other_values=True,
)
