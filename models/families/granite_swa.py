"""Granite with sliding windows in most layers, a sink for every head, and a theta for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, amounts
from ..common.config_rules import Rope, read_rope, window_between_full_layers
from ..common.errors import CompileError
from ..family import plain
from ..model_config import ModelConfig
from ..weights import roles
from . import granite
from .shared.dense import all_heads

# Of both families with these layers.
KEYS = (Key("layer_rope_theta", "amounts", absent=(), null=()),)
SINKS = {roles.SINKS: plain("model.layers.{layer}.self_attn.sinks")}
TINY: Mapping[str, Any] = {
    "num_hidden_layers": 3,
    "sliding_window": 10,
    "layer_rope_theta": [0, 10000.0, 5000.0],
}


def attention(config: ModelConfig, layer: int) -> Attention:
    """That of a layer; a theta of 0 is no rotation.

    Raises:
        CompileError: There is not one theta for each layer.
    """
    flags = config.flags
    bias, thetas = flags["attention_bias"], flags["layer_rope_theta"] or [config.rope_theta] * config.num_layers
    if len(thetas) != config.num_layers:
        raise CompileError(
            f"config.json: layer_rope_theta has {len(thetas)} numbers, expected one for each of {config.num_layers}"
        )
    return Attention(
        qkv_bias=bias,
        out_bias=bias,
        scale=flags["attention_multiplier"],
        window=config.windows[layer],
        sinks=True,
        rotated=thetas[layer] != 0,
        local_rope=thetas[layer] not in (0, config.rope_theta),
    )


def local_rope(raw: Mapping[str, Any], head_dim: int) -> Rope:
    """The RoPE of layers whose theta is not that of the model.

    Raises:
        CompileError: They have several.
    """
    theta, scaling = read_rope(raw, raw.get("max_position_embeddings", 1), {}, 10000.0)
    thetas = amounts("layer_rope_theta", raw.get("layer_rope_theta") or ())
    others = sorted({each for each in thetas if each not in (0, theta)})
    if len(others) > 1:
        raise CompileError(f"config.json: layer_rope_theta has {others} beside {theta}, expected one other at most")
    return Rope(theta=others[0] if others else theta, scaling=scaling, head_dim=head_dim)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return attention(config, layer), Mlp(bias=config.flags["mlp_bias"])


_GRANITE = granite.FAMILY
FAMILY = replace(
    _GRANITE,
    model_type="granite_swa",
    architecture="GraniteSWAForCausalLM",
    title="Granite SWA",
    models="Granite Swash 2B",
    has="as Granite; a sink for every head; `sliding_window` in layers that `layer_types` names, or in all but the "
    "first of four; `layer_rope_theta`, with one theta beside that of the model, and 0 for no rotation",
    keys=(
        *_GRANITE.keys,
        Key("num_key_value_heads", absent=4, null=all_heads),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("tie_word_embeddings", "flag", absent=True),
        Key("max_position_embeddings", absent=8192),
        *KEYS,
    ),
    window=window_between_full_layers,
    layer=_layer,
    tensors={**_GRANITE.tensors, **SINKS},
    local_rope=local_rope,
    gguf=None,
    tiny={**_GRANITE.tiny, **TINY},
)
