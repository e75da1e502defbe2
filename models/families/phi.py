"""Phi-1, 1.5 and 2: attention and an MLP without a gate beside each other, behind one norm, and a head with a bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Gguf, plain, tensors_of
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY
from .shared.layer_norm import centred, function_of, with_biases

_LAYER = "model.layers.{layer}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    mlp = Mlp(alone=function_of(config.flags), bias=True, beside=True, in_norm=False)
    return Attention(qkv_bias=True, out_bias=True), mlp


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**centred(values), "head_bias": True}


FAMILY = Family(
    model_type="phi",
    architecture="PhiForCausalLM",
    title="Phi",
    models="Phi-1, Phi-1.5, Phi-2",
    has="layer norms with biases; the MLP beside attention, behind the same norm, without a gate and with GELU for "
    "SiLU (`hidden_act`); biases on all Linears, the head too; RoPE rotates part of a head, `partial_rotary_factor`",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("hidden_act", "choice", absent="gelu_new"),
        Only("qk_layernorm", False),
    ),
    spelled={"rms_norm_eps": "layer_norm_eps"},
    layer=_layer,
    tensors={
        **with_biases({**TENSORS, roles.FINAL_NORM: plain("model.final_layernorm.weight")}),
        **tensors_of(
            {
                (roles.ATTENTION_OUT, roles.ATTENTION_OUT_BIAS): "self_attn.dense",
                (roles.UP, roles.UP_BIAS): "mlp.fc1",
                (roles.DOWN, roles.DOWN_BIAS): "mlp.fc2",
            },
            f"{_LAYER}.",
        ),
        roles.HEAD_BIAS: plain("lm_head.bias"),
    },
    folded=_folded,
    gguf=Gguf(
        arch="phi2",
        names={
            "output_norm": "model.final_layernorm",
            "attn_output": "self_attn.dense",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
        },
        keys={"attention.layer_norm_epsilon": "layer_norm_eps"},
        derived=lambda get, config: {"hidden_act": "gelu_new"},
    ),
    rotary=0.5,
    tiny={
        **TINY,
        "layer_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "hidden_act": "gelu_new",
    },
    other_values=True,
)
