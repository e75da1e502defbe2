"""GPT-J: attention and an MLP without a gate beside each other, behind one norm; part of a head turns, in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, size
from ..family import Family, Tensors, plain, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, four_times
from .shared.gpt2 import GPT2_LAYER, GPT2_SPELLING, GPT2_TINY
from .shared.layer_norm import centred, function_of, with_biases


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(), Mlp(alone=function_of(config.flags), bias=True, beside=True, in_norm=False)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**centred(values), "head_bias": True}


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
        Key("intermediate_size", absent=four_times, null=four_times),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("hidden_act", "choice", absent="gelu_new"),
    ),
    spelled={**GPT2_SPELLING, "num_key_value_heads": "n_head"},
    layer=_layer,
    tensors={
        roles.EMBEDDING: plain("transformer.wte.weight"),
        roles.QKV: Tensors("in_pairs", tuple(f"{GPT2_LAYER}.attn.{part}_proj.weight" for part in "qkv")),
        roles.ATTENTION_OUT: plain(f"{GPT2_LAYER}.attn.out_proj.weight"),
        **with_biases(
            {
                roles.ATTENTION_NORM: plain(f"{GPT2_LAYER}.ln_1.weight"),
                roles.FINAL_NORM: plain("transformer.ln_f.weight"),
            }
        ),
        **tensors_of(
            {(roles.UP, roles.UP_BIAS): "mlp.fc_in", (roles.DOWN, roles.DOWN_BIAS): "mlp.fc_out"}, f"{GPT2_LAYER}."
        ),
        roles.HEAD: Tensors("tied", ("lm_head.weight",)),
        roles.HEAD_BIAS: plain("lm_head.bias"),
    },
    folded=_folded,
    rotary=_rotary,
    tiny={**GPT2_TINY, "rotary_dim": 16, "tie_word_embeddings": False},
    other_values=True,
)
