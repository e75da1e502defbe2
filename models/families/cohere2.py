"""Command R7B and Command A: as Command-R, but only layers with a window rotate q and k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Block
from ..common.config_keys import size
from ..common.config_rules import Windows, sliding_layers, windows_in
from ..model_config import ModelConfig
from . import cohere


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    """In layers that `layer_types` names, or else in all but every `sliding_window_pattern`th."""
    types, window = raw.get("layer_types"), raw.get("sliding_window", 4096)
    if types is not None:
        return windows_in(sliding_layers(types, layers), window)
    step = size("sliding_window_pattern", raw.get("sliding_window_pattern", 4))
    return windows_in([(layer + 1) % step != 0 for layer in range(layers)], window)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return cohere.layer_of(config, layer, rotated=config.windows[layer] is not None)


FAMILY = replace(
    cohere.FAMILY,
    model_type="cohere2",
    architecture="Cohere2ForCausalLM",
    title="Command R7B and A",
    models="Command R7B, Command A, Tiny Aya",
    has="as Command-R; `sliding_window` in layers that `layer_types` names, or in all but every "
    "`sliding_window_pattern`th, and no rotation in the others",
    window=_windows,
    layer=_layer,
    rope_theta=10000.0,
    tiny={**cohere.FAMILY.tiny, "rope_theta": 50000.0, "sliding_window": 10, "sliding_window_pattern": 2},
)
