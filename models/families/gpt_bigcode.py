"""StarCoder 1: GPT-2 with one head of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Tensors
from ..model_config import ModelConfig
from ..weights import roles
from . import gpt2
from .shared.gpt2 import GPT2_LAYER
from .shared.layer_norm import function_of
from .shared.learned_positions import POSITION_KEYS

_QKV = f"{GPT2_LAYER}.attn.c_attn"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    scale = None if config.flags["scale_attn_weights"] else 1.0
    attention = Attention(rotated=False, qkv_bias=True, out_bias=True, scale=scale)
    return attention, Mlp(alone=function_of(config.flags), bias=True)


def _kv_heads(values: Mapping[str, Any]) -> int:
    return 1 if values["multi_query"] else int(values["num_attention_heads"])


FAMILY = replace(
    gpt2.FAMILY,
    model_type="gpt_bigcode",
    architecture="GPTBigCodeForCausalLM",
    title="GPT-BigCode",
    models="StarCoder 1B to 15B, StarCoderBase, SantaCoder, Granite Code 20B",
    has="layer norms with biases; a learned row for each of `n_positions` positions, and no RoPE; no gate in the MLP, "
    "GELU for SiLU (`activation_function`); biases on all Linears; one KV head with `multi_query`",
    keys=(
        Key("num_attention_heads"),
        Key("multi_query", "flag", absent=True),
        *POSITION_KEYS,
        Key("num_key_value_heads", absent=_kv_heads),
        Key("max_position_embeddings", absent=1024),
        Key("hidden_act", "choice", absent="gelu_pytorch_tanh"),
        Key("scale_attn_weights", "flag", absent=True),
    ),
    layer=_layer,
    tensors={
        **gpt2.FAMILY.tensors,
        # Without `multi_query` heads lie one behind the other, each with its q, k and v.
        roles.QKV: Tensors("by_heads", (f"{_QKV}.weight",)),
        roles.QKV_BIAS: Tensors("by_heads", (f"{_QKV}.bias",)),
    },
    tiny={**gpt2.FAMILY.tiny, "activation_function": "gelu_pytorch_tanh", "multi_query": True},
    other_types=(),
    columns_first=False,
    other_values=True,
)
