"""Hunyuan dense, 0.5B to 7B: norms on the heads of q and k behind the rotation, whose base grows by `alpha`."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Gguf, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY

_ATTENTION = "model.layers.{layer}.self_attn"


def attention(config: ModelConfig) -> Attention:
    """That of every layer."""
    bias = config.flags["attention_bias"]
    return Attention(qk_norm=True, late_norm=True, qkv_bias=bias, out_bias=bias)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return attention(config), Mlp()


FAMILY = Family(
    model_type="hunyuan_v1_dense",
    architecture="HunYuanDenseV1ForCausalLM",
    title="Hunyuan dense",
    models="Hunyuan 0.5B, 1.8B, 4B, 7B",
    has="norms on the heads of q and k behind the rotation; `attention_bias` on q, k, v, o; dynamic RoPE with a fixed "
    "`alpha`",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("attention_bias", "flag", absent=False),
        Only("use_qk_norm", True),
        Only("use_cla", False),
        Only("mlp_bias", False),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        roles.Q_NORM: plain(f"{_ATTENTION}.query_layernorm.weight"),
        roles.K_NORM: plain(f"{_ATTENTION}.key_layernorm.weight"),
    },
    gguf=Gguf(
        arch="hunyuan-dense",
        names={"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    ),
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0},
    },
)
