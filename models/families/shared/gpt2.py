"""Names that GPT-2 gave to keys and modules, which models after it keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .dense import TINY

GPT2_LAYER = "transformer.h.{layer}"
GPT2_SPELLING: Mapping[str, str] = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function",
}
GPT2_TINY: Mapping[str, Any] = {
    **{name: TINY[key] for key, name in GPT2_SPELLING.items() if key in TINY},
    "vocab_size": TINY["vocab_size"],
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
}
