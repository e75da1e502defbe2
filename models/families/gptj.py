"""GPT-J: attention and an MLP without a gate beside each other, behind one norm; part of a head turns, in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, size
from ..family import Family, Tensors, plain, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TINY
from .shared.layer_norm import centred, function_of, with_biases

_LAYER = "transformer.h.{layer}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(), Mlp(alone=function_of(config.flags), bias=True, beside=True, in_norm=False)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**centred(values), "head_bias": True}


def _inner(values: Mapping[str, Any]) -> int:
    return 4 * int(values["hidden_size"])


def _rotary(raw: Mapping[str, Any], head_dim: int) -> float:
    return size("rotary_dim", raw.get("rotary_dim", 64)) / head_dim


FAMILY = Family(
    model_type="gptj",
    architecture="GPTJForCausalLM",
    title="GPT-J",
    models="GPT-J 6B and models tuned from it",
    has="layer norms with biases; the MLP beside attention, behind the same norm, without a gate and with GELU for "
    "SiLU (`activation_function`); biases on the MLP and the head; RoPE rotates `rotary_dim` elements of a head, in "
    "pairs of neighbours",
    keys=(
        *KEYS,
        Key("intermediate_size", absent=_inner, null=_inner),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("hidden_act", "choice", absent="gelu_new"),
    ),
    spelled={
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "num_key_value_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
        "rms_norm_eps": "layer_norm_epsilon",
        "hidden_act": "activation_function",
    },
    layer=_layer,
    tensors={
        roles.EMBEDDING: plain("transformer.wte.weight"),
        roles.QKV: Tensors("in_pairs", tuple(f"{_LAYER}.attn.{part}_proj.weight" for part in "qkv")),
        roles.ATTENTION_OUT: plain(f"{_LAYER}.attn.out_proj.weight"),
        **with_biases(
            {
                roles.ATTENTION_NORM: plain(f"{_LAYER}.ln_1.weight"),
                roles.FINAL_NORM: plain("transformer.ln_f.weight"),
            }
        ),
        **tensors_of(
            {(roles.UP, roles.UP_BIAS): "mlp.fc_in", (roles.DOWN, roles.DOWN_BIAS): "mlp.fc_out"}, f"{_LAYER}."
        ),
        roles.HEAD: Tensors("tied", ("lm_head.weight",)),
        roles.HEAD_BIAS: plain("lm_head.bias"),
    },
    folded=_folded,
    rotary=_rotary,
    tiny={
        "n_embd": TINY["hidden_size"],
        "n_inner": TINY["intermediate_size"],
        "n_layer": TINY["num_hidden_layers"],
        "n_head": TINY["num_attention_heads"],
        "n_positions": TINY["max_position_embeddings"],
        "vocab_size": TINY["vocab_size"],
        "rotary_dim": 16,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
        "tie_word_embeddings": False,
    },
    other_values=True,
)
