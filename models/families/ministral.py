"""Ministral 8B: Mistral with a sliding window in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.config_keys import Key
from ..common.config_rules import Windows, sliding_layers, windows_in
from . import mistral
from .shared.dense import KEYS, all_heads


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    types, window = raw.get("layer_types"), raw.get("sliding_window", 4096)
    return windows_in([True] * layers if types is None else sliding_layers(types, layers), window)


_MISTRAL = mistral.FAMILY
FAMILY = replace(
    _MISTRAL,
    model_type="ministral",
    architecture="MinistralForCausalLM",
    title="Ministral",
    models="Ministral 8B, as transformers 5 calls it",
    has="as Mistral; `sliding_window` in layers that `layer_types` names",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8, null=all_heads),
        Key("max_position_embeddings", absent=131072),
    ),
    window=_window,
    gguf=None,
    tiny={**_MISTRAL.tiny, "sliding_window": 10, "layer_types": ["sliding_attention", "full_attention"]},
)
