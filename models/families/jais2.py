"""Jais 2: Llama's layers with norms that centre rows, MLPs of up, the square of Relu, and down, biases everywhere."""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Key
from ..family import Gguf
from . import nemotron
from .shared.dense import TINY
from .shared.layer_norm import CENTRED_TENSORS

_NEMOTRON = nemotron.FAMILY
FAMILY = replace(
    _NEMOTRON,
    model_type="jais2",
    architecture="Jais2ForCausalLM",
    title="Jais 2",
    models="Jais 2 8B, 70B",
    has="layer norms with biases; no gate in the MLP, the square of ReLU for SiLU; `attention_bias` and `mlp_bias` as "
    "Llama, on if absent",
    keys=(
        *_NEMOTRON.keys,
        Key("max_position_embeddings", absent=8192),
        Key("attention_bias", "flag", absent=True),
        Key("mlp_bias", "flag", absent=True),
    ),
    spelled={"rms_norm_eps": "layer_norm_eps"},
    tensors={**_NEMOTRON.tensors, **CENTRED_TENSORS},
    gguf=Gguf(
        arch="jais2",
        keys={"attention.layer_norm_epsilon": "layer_norm_eps"},
        derived=lambda get, config: {"hidden_act": "relu2"},
    ),
    rotary=None,
    tiny={**TINY, "layer_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "relu2"},
)
