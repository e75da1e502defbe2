"""SmolLM3 3B: Llama whose every fourth layer does not rotate q and k (NoPE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, flag
from ..common.config_rules import Windows, sliding_layers, windows_in
from ..common.errors import CompileError
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import BIASES, KEYS, TENSORS, TINY, all_heads


def _rotated(values: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """1 for a layer with RoPE, as `no_rope_layers` has it despite its name."""
    given, step = values.get("no_rope_layers"), values.get("no_rope_layer_interval", 4)
    return tuple(int((layer + 1) % step != 0) for layer in range(layers)) if given is None else tuple(given)


def _usual(values: Mapping[str, Any]) -> tuple[int, ...]:
    return _rotated(values, values["num_hidden_layers"])


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    """`use_sliding_window` turns the window on, in layers that `layer_types` names or else in those without RoPE."""
    rotated, types = _rotated(raw, layers), raw.get("layer_types")
    if len(rotated) < layers:
        raise CompileError(f"config.json: no_rope_layers has {len(rotated)} numbers, expected one for each of {layers}")
    if types is not None:
        return windows_in(sliding_layers(types, layers), raw.get("sliding_window"))
    slides = flag("use_sliding_window", raw.get("use_sliding_window", False))
    return windows_in([slides and not rotates for rotates in rotated[:layers]], raw.get("sliding_window"))


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias, rotated = config.flags["attention_bias"], config.flags["no_rope_layers"]
    attention = Attention(qkv_bias=bias, out_bias=bias, window=config.windows[layer], rotated=rotated[layer] != 0)
    return attention, Mlp(bias=config.flags["mlp_bias"])


FAMILY = Family(
    model_type="smollm3",
    architecture="SmolLM3ForCausalLM",
    title="SmolLM3",
    models="SmolLM3-3B",
    has="no rotation where `no_rope_layers` is 0, or in every `no_rope_layer_interval`th layer; `attention_bias` and "
    "`mlp_bias` as Llama; `use_sliding_window` in layers that `layer_types` names or in those without rotation",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=4, null=all_heads),
        Key("tie_word_embeddings", "flag", absent=True),
        Key("max_position_embeddings", absent=32768),
        Key("no_rope_layer_interval", absent=4),
        Key("no_rope_layers", "layers", absent=_usual, null=_usual),
        *BIASES,
    ),
    window=_window,
    layer=_layer,
    tensors=TENSORS,
    gguf=Gguf(arch="smollm3", interleaved=True),
    rope_theta=2e6,
    tiny={
        **TINY,
        "rms_norm_eps": 1e-6,
        "rope_theta": 2e6,
        "tie_word_embeddings": True,
        "no_rope_layer_interval": 2,
        "pad_token_id": None,  # transformers' default is beyond the vocabulary
    },
)
