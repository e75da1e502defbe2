"""Falcon: an MLP without a gate beside attention, behind the same norm or one of its own, and few heads of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Tensors, plain, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TINY, all_heads, four_times
from .shared.layer_norm import centred, function_of, with_biases

_LAYER = "transformer.h.{layer}"
_QKV = f"{_LAYER}.self_attention.query_key_value"
_TWO_NORMS = 2  # before attention and before the MLP, as `num_ln_in_parallel_attn` has it in Falcon 40B and 180B


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    beside = flags["new_decoder_architecture"] or flags["parallel_attn"]
    attention = Attention(qkv_bias=flags["bias"], out_bias=flags["bias"])
    own_norm = not beside or (flags["new_decoder_architecture"] and flags["num_ln_in_parallel_attn"] == _TWO_NORMS)
    return attention, Mlp(alone=function_of(flags), bias=flags["bias"], beside=beside, in_norm=own_norm)


def _kv_heads(values: Mapping[str, Any]) -> int:
    """Only the newer architecture reads how many there are."""
    if values["new_decoder_architecture"]:
        return int(values["n_head_kv"])
    return 1 if values["multi_query"] else int(values["num_attention_heads"])


FAMILY = Family(
    model_type="falcon",
    architecture="FalconForCausalLM",
    title="Falcon",
    models="Falcon 7B, 40B, 180B, Falcon 2 11B; Falcon 3 is Llama",
    has="layer norms with biases; no gate in the MLP, GELU for SiLU (`activation`); `bias` on all Linears; the MLP "
    "beside attention, behind the same norm, with `new_decoder_architecture` or `parallel_attn`; with the former "
    "`num_kv_heads`, and a norm of the MLP's own unless `num_ln_in_parallel_attn` is 1, else one KV head with "
    "`multi_query`",
    keys=(
        Key("num_attention_heads"),
        Key("n_head_kv", absent=all_heads, null=all_heads),
        Key("new_decoder_architecture", "flag", absent=False),
        Key("multi_query", "flag", absent=True),
        Key("parallel_attn", "flag", absent=True),
        Key("bias", "flag", absent=False),
        Key("num_ln_in_parallel_attn", "count", absent=_TWO_NORMS, null=_TWO_NORMS),
        *KEYS,
        Key("num_key_value_heads", absent=_kv_heads),
        Key("intermediate_size", absent=four_times, null=four_times),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("tie_word_embeddings", "flag", absent=True),
        Key("hidden_act", "choice", absent="gelu"),
        Only("alibi", False),
    ),
    spelled={
        "rms_norm_eps": "layer_norm_epsilon",
        "hidden_act": "activation",
        "intermediate_size": "ffn_hidden_size",
        "n_head_kv": "num_kv_heads",
        "num_key_value_heads": "",  # no file says what counts
    },
    layer=_layer,
    tensors={
        roles.EMBEDDING: plain("transformer.word_embeddings.weight"),
        roles.QKV: Tensors("by_heads", (f"{_QKV}.weight",)),
        roles.QKV_BIAS: Tensors("by_heads", (f"{_QKV}.bias",)),
        **with_biases(
            {
                roles.ATTENTION_NORM: plain(f"{_LAYER}.input_layernorm.weight"),
                roles.MLP_NORM: plain(f"{_LAYER}.post_attention_layernorm.weight"),
                roles.FINAL_NORM: plain("transformer.ln_f.weight"),
            }
        ),
        **tensors_of(
            {
                (roles.ATTENTION_OUT, roles.ATTENTION_OUT_BIAS): "self_attention.dense",
                (roles.UP, roles.UP_BIAS): "mlp.dense_h_to_4h",
                (roles.DOWN, roles.DOWN_BIAS): "mlp.dense_4h_to_h",
            },
            f"{_LAYER}.",
        ),
        roles.HEAD: Tensors("tied", ("lm_head.weight",)),
    },
    folded=centred,
    tiny={
        **{key: TINY[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")},
        "max_position_embeddings": TINY["max_position_embeddings"],
        "ffn_hidden_size": TINY["intermediate_size"],
        "num_kv_heads": TINY["num_key_value_heads"],
        "new_decoder_architecture": True,
        "num_ln_in_parallel_attn": 1,
        "bias": True,
        "rope_theta": 10000.0,
    },
    other_values=True,
)
