"""Code World Model: Llama's layers, most of them with a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..common.config_rules import Windows, window_between_full_layers
from ..model_config import ModelConfig
from . import llama
from .shared.dense import KEYS


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    return window_between_full_layers({"sliding_window": 8192, **raw}, layers)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(window=config.windows[layer]), Mlp(bias=config.flags["mlp_bias"])


_LLAMA = llama.FAMILY
_ROPE = _LLAMA.tiny["rope_parameters"]
FAMILY = replace(
    _LLAMA,
    model_type="cwm",
    architecture="CwmForCausalLM",
    title="CWM",
    models="Code World Model 32B",
    has="`sliding_window` in layers that `layer_types` names, or in all but the first of four; `mlp_bias` on gate, up, "
    "down",
    keys=(
        *KEYS,
        Key("mlp_bias", "flag", absent=False),
        Only("attention_bias", False),
        Key("head_dim", absent=128),
        Key("num_key_value_heads", absent=8),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
    ),
    window=_window,
    layer=_layer,
    gguf=None,
    rope_scaling={**_ROPE, "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 8192},
    tiny={**_LLAMA.tiny, "head_dim": 64, "attention_bias": False, "num_hidden_layers": 3, "sliding_window": 10},
)
