"""XGLM: as OPT, with GELU, and positions whose rows are sines and cosines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Tensors
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import TINY
from .shared.layer_norm import centred, function_of
from .shared.learned_positions import FAIRSEQ_ROWS_BEFORE, POSITION_KEYS, UNREAD, fairseq_tensors

_SPELLED = {
    "hidden_size": "d_model",
    "intermediate_size": "ffn_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "attention_heads",
    "hidden_act": "activation_function",
}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(rotated=False, qkv_bias=True, out_bias=True), Mlp(alone=function_of(config.flags), bias=True)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    scale = values["hidden_size"] ** 0.5 if values["scale_embedding"] else 1.0
    rows = values["max_position_embeddings"] + FAIRSEQ_ROWS_BEFORE
    table = {"positions": rows, "first_position": FAIRSEQ_ROWS_BEFORE, "sinusoids": True}
    return {**centred(values), **table, "embedding_scale": scale}


FAMILY = Family(
    model_type="xglm",
    architecture="XGLMForCausalLM",
    title="XGLM",
    models="XGLM 564M to 7.5B",
    has="layer norms with biases; a row of sines and cosines for each position, and no RoPE; no gate in the MLP, GELU "
    "for SiLU (`activation_function`); biases on all Linears; `scale_embedding`",
    keys=(
        *POSITION_KEYS,
        Key("max_position_embeddings", absent=2048),
        Key("hidden_act", "choice", absent="gelu"),
        Key("intermediate_size"),
        Key("scale_embedding", "flag", absent=True),
    ),
    spelled={**_SPELLED, "rms_norm_eps": "", **UNREAD},  # transformers ignores the epsilon of such files
    layer=_layer,
    tensors={**fairseq_tensors("model", "layer_norm"), roles.HEAD: Tensors("tied", ("lm_head.weight",))},
    folded=_folded,
    tiny={
        **{name: TINY[key] for key, name in _SPELLED.items() if key != "hidden_act"},
        **{key: TINY[key] for key in ("vocab_size", "max_position_embeddings")},
        "activation_function": "gelu",
        "tie_word_embeddings": True,
    },
)
