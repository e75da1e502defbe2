"""Apertus: norms on the heads of q and k, and MLPs of up, xIELU with numbers of its own, and down."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY

_LAYER = "model.layers.{layer}"
_XIELU = f"{_LAYER}.mlp.act_fn"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    return Attention(qk_norm=True, qkv_bias=bias, out_bias=bias), Mlp(alone="xielu")


FAMILY = Family(
    model_type="apertus",
    architecture="ApertusForCausalLM",
    title="Apertus",
    models="Apertus 8B, 70B",
    has="norms on the heads of q and k; no gate in the MLP, xIELU for SiLU; `attention_bias` on q, k, v, o",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=65536),
        Key("attention_bias", "flag", absent=False),
        Only("hidden_act", "xielu"),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        roles.ATTENTION_NORM: plain(f"{_LAYER}.attention_layernorm.weight"),
        roles.MLP_NORM: plain(f"{_LAYER}.feedforward_layernorm.weight"),
        roles.UP: plain(f"{_LAYER}.mlp.up_proj.weight"),
        roles.XIELU_POSITIVE: Tensors("plain", (f"{_XIELU}.alpha_p",), function="softplus"),
        roles.XIELU_NEGATIVE: Tensors("plain", (f"{_XIELU}.alpha_n",), function="softplus"),
        roles.XIELU_SLOPE: plain(f"{_XIELU}.beta"),
    },
    other_values=True,
    rope_theta=12000000.0,
    rope_scaling={
        "rope_type": "llama3",
        "rope_theta": 12000000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    tiny={**TINY, "rms_norm_eps": 1e-5, "hidden_act": "xielu"},
)
