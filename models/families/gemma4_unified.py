"""Gemma 4 12B, its language model: Gemma 4 without inputs of layers and without experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.config_keys import Key, Only
from ..common.config_rules import Windows
from . import gemma4

_WITHOUT = ("enable_moe_block", "num_experts", "top_k_experts", "moe_intermediate_size", "vocab_size_per_layer_input")


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    return gemma4.FAMILY.window({"sliding_window": 1024, **raw}, layers)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return gemma4.FAMILY.folded({**values, "hidden_size_per_layer_input": 0})


FAMILY = replace(
    gemma4.FAMILY,
    model_type="gemma4_unified",
    architecture="Gemma4UnifiedForConditionalGeneration",
    text_architecture="Gemma4UnifiedForCausalLM",
    title="Gemma 4 12B",
    models="Gemma 4 12B, the language model",
    has="as Gemma 4, with neither inputs of layers nor experts",
    gguf=None,  # its files are read as those of Gemma 4
    keys=(
        *(key for key in gemma4.FAMILY.keys if key.name not in (*_WITHOUT, "hidden_size_per_layer_input")),
        Key("max_position_embeddings", absent=262144),
        Only("enable_moe_block", False),
        Only("hidden_size_per_layer_input", 0, also=(None,)),
    ),
    window=_window,
    experts=None,
    folded=_folded,
    vision=None,
    sound=None,
    assistant=None,
    tiny={key: value for key, value in gemma4.FAMILY.tiny.items() if key != "hidden_size_per_layer_input"},
)
