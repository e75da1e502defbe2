"""OPT: learned positions behind two rows that are of none, norms with biases, an MLP without a gate, ReLU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import TINY
from .shared.layer_norm import function_of
from .shared.learned_positions import FAIRSEQ_ROWS_BEFORE, POSITION_KEYS, UNREAD, fairseq_tensors, learned

_DECODER = "model.decoder"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias, before = config.flags["enable_bias"], config.flags["do_layer_norm_before"]
    attention = Attention(rotated=False, qkv_bias=bias, out_bias=bias, in_norm=before, sum_norm=not before)
    return attention, Mlp(alone=function_of(config.flags), bias=bias, in_norm=before, sum_norm=not before)


def _hidden(values: Mapping[str, Any]) -> int:
    return int(values["hidden_size"])


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    width, affine = values["word_embed_proj_dim"], values["layer_norm_elementwise_affine"]
    other = {} if width == values["hidden_size"] else {"input_size": width, "output_size": width}
    final = values["do_layer_norm_before"] and not values["_remove_final_layer_norm"]
    norms = {"norm_weight": affine, "norm_bias": affine, "final_norm": final}
    return {**learned(values, FAIRSEQ_ROWS_BEFORE), **norms, **other}


FAMILY = Family(
    model_type="opt",
    architecture="OPTForCausalLM",
    title="OPT",
    models="OPT 125M to 66B, Galactica",
    has="layer norms with biases, or without weights and biases (`layer_norm_elementwise_affine`); a learned row for "
    "each of `max_position_embeddings` positions, and no RoPE; no gate in the MLP, ReLU for SiLU "
    "(`activation_function`); `enable_bias` on all Linears; `word_embed_proj_dim` numbers of each token in the "
    "embedding; norms of the sums behind attention and MLP, and no final one, if `do_layer_norm_before` is false",
    keys=(
        Key("hidden_size"),
        *POSITION_KEYS,
        Key("max_position_embeddings", absent=2048),
        Key("hidden_act", "choice", absent="relu"),
        Key("intermediate_size"),
        Key("enable_bias", "flag", absent=True),
        Key("layer_norm_elementwise_affine", "flag", absent=True),
        Key("word_embed_proj_dim", absent=_hidden, null=_hidden),
        Key("do_layer_norm_before", "flag", absent=True),
        Key("_remove_final_layer_norm", "flag", absent=False),
    ),
    spelled={"rms_norm_eps": "", "intermediate_size": "ffn_dim", "hidden_act": "activation_function", **UNREAD},
    layer=_layer,
    tensors={
        **fairseq_tensors(_DECODER, "final_layer_norm"),
        roles.INPUT_PROJECTION: plain(f"{_DECODER}.project_in.weight"),
        roles.OUTPUT_PROJECTION: plain(f"{_DECODER}.project_out.weight"),
        roles.HEAD: Tensors("tied", ("lm_head.weight",)),
    },
    folded=_folded,
    tiny={
        **{key: TINY[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")},
        "max_position_embeddings": TINY["max_position_embeddings"],
        "ffn_dim": TINY["intermediate_size"],
        "word_embed_proj_dim": TINY["hidden_size"],
        "activation_function": "relu",
        "tie_word_embeddings": True,
    },
)
