"""OLMo 3, 7B and 32B: OLMo 2 with a window in three of four layers, and RoPE that is scaled in the others only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..common.config_rules import Rope, Windows, read_local_rope, sliding_layers, windows_in
from ..family import Gguf
from . import olmo2
from .shared.gguf import GGUF_NORMS, LOCAL_THETA, PATTERN, windows_by_layer

_THETA = 500000.0


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    types = raw.get("layer_types")
    sliding = [layer % 4 != 3 for layer in range(layers)] if types is None else sliding_layers(types, layers)
    return windows_in(sliding, raw.get("sliding_window", 4096))


def _local_rope(raw: Mapping[str, Any], head_dim: int) -> Rope:
    """Of files that do not say, the theta of the other layers, without a scaling."""
    return read_local_rope({"rope_local_base_freq": raw.get("rope_theta", _THETA), **raw}, head_dim)


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> dict[str, Any]:
    return {**windows_by_layer(get, config), "rope_local_base_freq": get(LOCAL_THETA) or config["rope_theta"]}


FAMILY = replace(
    olmo2.FAMILY,
    model_type="olmo3",
    architecture="Olmo3ForCausalLM",
    title="OLMo 3",
    models="OLMo 3 7B, 32B, and 3.1",
    has="as OLMo 2; `sliding_window` in layers that `layer_types` names, or in three of four, which do not scale RoPE",
    window=_windows,
    rope_theta=_THETA,
    local_rope=_local_rope,
    gguf=Gguf(arch="olmo2", windowed=True, names=GGUF_NORMS, also=(PATTERN, LOCAL_THETA), derived=_of_gguf),
    tiny={**olmo2.FAMILY.tiny, "sliding_window": 10, "layer_types": ["sliding_attention", "full_attention"]},
)
