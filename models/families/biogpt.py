"""BioGPT: as OPT, with GELU, and an embedding that grows with the root of the hidden size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Tensors, plain, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import TINY
from .shared.layer_norm import function_of, with_biases
from .shared.learned_positions import POSITION_KEYS, UNREAD, learned, table_of_positions

_LAYER = "biogpt.layers.{layer}"
_ROWS_BEFORE = 2  # of the table of positions


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(rotated=False, qkv_bias=True, out_bias=True), Mlp(alone=function_of(config.flags), bias=True)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    scale = values["hidden_size"] ** 0.5 if values["scale_embedding"] else 1.0
    return {**learned(values, _ROWS_BEFORE), "embedding_scale": scale}


def _qkv(what: str) -> Tensors:
    return Tensors("stack", tuple(f"{_LAYER}.self_attn.{part}_proj.{what}" for part in "qkv"))


FAMILY = Family(
    model_type="biogpt",
    architecture="BioGptForCausalLM",
    title="BioGPT",
    models="BioGPT and BioGPT Large",
    has="layer norms with biases; a learned row for each of `max_position_embeddings` positions, and no RoPE; no gate "
    "in the MLP, GELU for SiLU (`hidden_act`); biases on all Linears; `scale_embedding`",
    keys=(
        *POSITION_KEYS,
        Key("max_position_embeddings", absent=1024),
        Key("hidden_act", "choice", absent="gelu"),
        Key("intermediate_size"),
        Key("scale_embedding", "flag", absent=True),
    ),
    spelled={"rms_norm_eps": "", **UNREAD},  # transformers ignores the epsilon of such files
    layer=_layer,
    tensors={
        roles.EMBEDDING: plain("biogpt.embed_tokens.weight"),
        **table_of_positions("biogpt.embed_positions.weight"),
        roles.QKV: _qkv("weight"),
        roles.QKV_BIAS: _qkv("bias"),
        **with_biases(
            {
                roles.ATTENTION_NORM: plain(f"{_LAYER}.self_attn_layer_norm.weight"),
                roles.MLP_NORM: plain(f"{_LAYER}.final_layer_norm.weight"),
                roles.FINAL_NORM: plain("biogpt.layer_norm.weight"),
            }
        ),
        **tensors_of(
            {
                (roles.ATTENTION_OUT, roles.ATTENTION_OUT_BIAS): "self_attn.out_proj",
                (roles.UP, roles.UP_BIAS): "fc1",
                (roles.DOWN, roles.DOWN_BIAS): "fc2",
            },
            f"{_LAYER}.",
        ),
        roles.HEAD: Tensors("tied", ("output_projection.weight",)),
    },
    folded=_folded,
    tiny={
        **{key: TINY[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")},
        **{key: TINY[key] for key in ("vocab_size", "max_position_embeddings")},
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
    },
)
