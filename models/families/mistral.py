"""Mistral 7B, Nemo and Small: no biases, heads of any size; a sliding window in all layers of old files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only, size
from ..common.config_rules import Windows
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import KEYS, TENSORS, TINY, all_heads


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(window=config.windows[layer]), Mlp()


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    window = raw.get("sliding_window", 4096)  # null in files of models without one
    return (None if window is None else size("sliding_window", window),) * layers


FAMILY = Family(
    model_type="mistral",
    architecture="MistralForCausalLM",
    title="Mistral",
    models="Mistral 7B, Nemo, Small (text)",
    has="`sliding_window` in all layers: 4096 if absent, null for none; heads of any size",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8, null=all_heads),
        Key("max_position_embeddings", absent=131072),
        Only("layer_types", None),  # transformers ignores it here; models that mean it have another model_type
    ),
    window=_window,
    layer=_layer,
    tensors=TENSORS,
    gguf=Gguf(arch="llama", interleaved=True, windowed=True),
    tiny={**TINY, "head_dim": 64, "rms_norm_eps": 1e-5, "sliding_window": None, "rope_theta": 1e6},
)
