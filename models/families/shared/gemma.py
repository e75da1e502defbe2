"""What the families of Gemma share: config keys, tensors, the windows of their layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...blocks import Attention
from ...common.config_keys import Key, Only, size
from ...common.config_rules import Windows, sliding_layers, windows_in
from ...common.errors import CompileError
from ...family import Tensors, plain
from ...model_config import ModelConfig
from ...weights import roles
from . import dense

# Hidden states of models with norms behind attention and MLP leave the range of fp16, and norms alone read them.
_RESIDUAL_SCALE = 2.0**-6

# Files leave out what is the default of transformers, sizes too.
KEYS: tuple[Key | Only, ...] = (
    Key("vocab_size", absent=262208),
    Key("hidden_size", absent=2304),
    Key("intermediate_size", absent=9216),
    Key("num_hidden_layers", absent=26),
    Key("num_attention_heads", absent=8),
    Key("num_key_value_heads", absent=4),
    Key("head_dim", absent=256),
    Key("rms_norm_eps", "number", absent=1e-6),
    Key("tie_word_embeddings", "flag", absent=True),
    Key("max_position_embeddings", absent=131072),
    Key("final_logit_softcapping", "optional"),
    Only("hidden_activation", "gelu_pytorch_tanh"),
    Only("attention_bias", False),
    Only("is_causal", True),
)

_LAYER = "model.layers.{layer}"

# Norms before and behind attention and MLP.
TENSORS: Mapping[roles.Role, Tensors] = {
    **dense.TENSORS,
    roles.ATTENTION_OUT_NORM: plain(f"{_LAYER}.post_attention_layernorm.weight"),
    roles.MLP_NORM: plain(f"{_LAYER}.pre_feedforward_layernorm.weight"),
    roles.MLP_OUT_NORM: plain(f"{_LAYER}.post_feedforward_layernorm.weight"),
}

# Of layers that take keys and values of another.
SHARED_KEYS: Mapping[roles.Role, Tensors] = {roles.Q: plain(f"{_LAYER}.self_attn.q_proj.weight")}

LAYER_INPUTS: Mapping[roles.Role, Tensors] = {
    roles.LAYER_INPUT_GATE: plain(f"{_LAYER}.per_layer_input_gate.weight"),
    roles.LAYER_INPUT_OUT: plain(f"{_LAYER}.per_layer_projection.weight"),
    roles.LAYER_INPUT_NORM: plain(f"{_LAYER}.post_per_layer_input_norm.weight"),
    roles.LAYER_INPUTS: plain("model.per_layer_model_projection.weight"),
    roles.LAYER_INPUTS_NORM: plain("model.per_layer_projection_norm.weight"),
    roles.LAYER_TABLE: plain("model.embed_tokens_per_layer.weight"),
}

TINY: Mapping[str, Any] = {
    **{key: value for key, value in dense.TINY.items() if key != "hidden_act"},
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}


def folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Constants of models with norms behind attention and MLP."""
    return {
        "embedding_scale": values["hidden_size"] ** 0.5 * _RESIDUAL_SCALE,
        "residual_scale": _RESIDUAL_SCALE,
        "logit_cap": values["final_logit_softcapping"],
    }


def source_of_keys(config: ModelConfig, layer: int) -> int | None:
    """Returns the layer whose keys and values a layer takes; None where it has its own."""
    windows, first = config.windows, len(config.windows) - config.flags["num_kv_shared_layers"]
    if layer < first:
        return None
    like = [other for other in range(first) if (windows[other] is None) == (windows[layer] is None)]
    if not like:
        raise CompileError(
            f"config.json: num_kv_shared_layers={config.flags['num_kv_shared_layers']} leaves no layer whose keys and "
            f"values layer {layer} could share"
        )
    return like[-1]


def attention_of_units(window: int | None, source: int | None) -> Attention:
    """Attention to keys and values of length 1, of its own or of the layer `source`, without a scale."""
    return Attention(
        qk_norm=True,
        window=window,
        local_rope=window is not None,
        scale=1.0,
        out_norm=True,
        unit_values=True,
        values="own" if source is None else "shared",
        source=source,
    )


def of_gguf(get: Callable[[str], Any], config: Mapping[str, Any], layers_of_27b: int) -> dict[str, Any]:
    """What GGUF files say otherwise, or not at all: llama.cpp knows the scale of attention by the number of layers."""
    per_head = config["hidden_size"] / config["num_attention_heads"]
    return {
        "query_pre_attn_scalar": per_head if config["num_hidden_layers"] == layers_of_27b else config["head_dim"],
        "final_logit_softcapping": get("final_logit_softcapping"),
    }


def with_norms_less_one(tensors: Mapping[roles.Role, Tensors]) -> Mapping[roles.Role, Tensors]:
    """The same, where files have the weights of norms less 1."""
    return {role: replace(source, offset=1.0) if role.kind == "norm" else source for role, source in tensors.items()}


def window_by_pattern(raw: Mapping[str, Any], layers: int) -> Windows:
    """`sliding_window` in layers that `layer_types` names, or in all but every `sliding_window_pattern`th one."""
    if (both := raw.get("use_bidirectional_attention")) not in (None, False, "vision"):
        raise CompileError(
            f"config.json: use_bidirectional_attention={both!r} is not supported: with a KV cache, tokens see those "
            "before them alone"
        )
    types = raw.get("layer_types")
    if types is None:
        pattern = size("sliding_window_pattern", raw.get("sliding_window_pattern") or 6)
        sliding = [(layer + 1) % pattern != 0 for layer in range(layers)]
    else:
        sliding = sliding_layers(types, layers)
    return windows_in(sliding, size("sliding_window", raw.get("sliding_window", 4096)))
