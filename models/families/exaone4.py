"""EXAONE 4.0, 1.2B and 32B: norms after attention and MLP; beside layers with a window, the others do not rotate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, size
from ..common.config_rules import Windows, sliding_layers, windows_in
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import CONTRACT, KEYS, NORMS_BEHIND, TENSORS, TINY
from .shared.gguf import GGUF_NORMS, PATTERN, windows_by_layer


def windows(raw: Mapping[str, Any], layers: int) -> Windows:
    """In layers that `layer_types` names, or else in all but every `sliding_window_pattern`th."""
    types, window = raw.get("layer_types"), raw.get("sliding_window", 4096)
    if types is not None:
        return windows_in(sliding_layers(types, layers), window)
    if window is None:
        return (None,) * layers
    step = size("sliding_window_pattern", raw.get("sliding_window_pattern", 4))
    return windows_in([(layer + 1) % step != 0 for layer in range(layers)], window)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    window = config.windows[layer]
    rotated = config.flags["sliding_window"] is None or window is not None
    attention = Attention(qk_norm=True, window=window, rotated=rotated, in_norm=False, out_norm=True)
    return attention, Mlp(in_norm=False, out_norm=True)


FAMILY = Family(
    model_type="exaone4",
    architecture="Exaone4ForCausalLM",
    title="EXAONE 4.0",
    models="EXAONE 4.0 1.2B, 32B",
    has="norms after attention and MLP, none before; norms on the heads of q and k; with `sliding_window`, a window "
    "in layers that `layer_types` names, or in all but every `sliding_window_pattern`th, and no rotation in the others",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=32),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("sliding_window", "optional", absent=4096),
    ),
    window=windows,
    layer=_layer,
    tensors={**TENSORS, **NORMS_BEHIND},
    contract=CONTRACT,
    gguf=Gguf(arch="exaone4", windowed=True, names=GGUF_NORMS, also=(PATTERN,), derived=windows_by_layer),
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "sliding_window": 10,
        "sliding_window_pattern": 2,
    },
    other_values=True,
)
