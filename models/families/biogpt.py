"""BioGPT: as OPT, with GELU, and an embedding that grows with the root of the hidden size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Tensors
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import TINY
from .shared.layer_norm import function_of
from .shared.learned_positions import FAIRSEQ_ROWS_BEFORE, POSITION_KEYS, UNREAD, fairseq_tensors, learned


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(rotated=False, qkv_bias=True, out_bias=True), Mlp(alone=function_of(config.flags), bias=True)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    scale = values["hidden_size"] ** 0.5 if values["scale_embedding"] else 1.0
    return {**learned(values, FAIRSEQ_ROWS_BEFORE), "embedding_scale": scale}


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
        **fairseq_tensors("biogpt", "layer_norm"),
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
