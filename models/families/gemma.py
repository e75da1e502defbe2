"""Gemma 1, 2B and 7B: Llama's layers with GELU for SiLU, heads of 256 and norms stored less 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import BIASES, KEYS, TENSORS, TINY
from .shared.gemma import with_norms_less_one


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    return Attention(qkv_bias=bias, out_bias=bias), Mlp(gelu="gelu_tanh")


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"embedding_scale": values["hidden_size"] ** 0.5}


FAMILY = Family(
    model_type="gemma",
    architecture="GemmaForCausalLM",
    title="Gemma",
    models="Gemma 1 and 1.1, 2B, 7B, CodeGemma",
    has="norms stored less 1; GELU for SiLU; the embedding times the root of its width; `attention_bias` on q, k, v, o",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=16),
        Key("head_dim", absent=256),
        Key("max_position_embeddings", absent=8192),
        Key("tie_word_embeddings", "flag", absent=True),
        BIASES[0],
        # Early files say GELU and mean its tanh form.
        Only("hidden_act", "gelu_pytorch_tanh", also=("gelu",)),
        Only("use_bidirectional_attention", None, also=(False,)),
    ),
    layer=_layer,
    tensors=with_norms_less_one(TENSORS),
    gguf=Gguf(arch="gemma", derived=lambda get, config: {"hidden_act": "gelu_pytorch_tanh"}),
    folded=_folded,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "gelu_pytorch_tanh",
    },
)
