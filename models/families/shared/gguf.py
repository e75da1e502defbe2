"""What several families share of how llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...common.errors import CompileError
from ...family import HEADS_BY_LAYER

# Norms behind attention and MLP, and one more before the MLP.
GGUF_NORMS = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
GGUF_NORMS_AROUND = {**GGUF_NORMS, "ffn_norm": "pre_feedforward_layernorm"}
PATTERN = "attention.sliding_window_pattern"
LOCAL_THETA = "rope.freq_base_swa"  # of layers with a window
GATING = "expert_gating_func"
SOFTMAX, SIGMOID = 1, 2  # of these functions


def shared_expert(module: str) -> dict[str, str]:
    """Returns the names of the tensors of an expert that every token takes."""
    return {f"ffn_{part}_shexp": f"{module}.{part}_proj" for part in ("gate", "up", "down")}


def heads_by_layer(get: Callable[[str], Any], config: Mapping[str, Any]) -> list[Any]:
    """Reads how many heads of keys each layer has, 0 in layers without attention."""
    heads, layers = get(HEADS_BY_LAYER), config["num_hidden_layers"]
    if not isinstance(heads, list) or len(heads) < layers:
        raise CompileError(f"{HEADS_BY_LAYER} is {heads!r:.80}, expected one number for each of {layers} layers")
    return heads[:layers]


def windows_by_layer(get: Callable[[str], Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Reads which layers have the window, where the file says it."""
    pattern, layers = get(PATTERN), config["num_hidden_layers"]
    if pattern is None:
        return {}
    if not isinstance(pattern, list) or len(pattern) < layers:
        raise CompileError(f"{PATTERN} is {pattern!r:.80}, expected one flag for each of {layers} layers")
    kinds = ["sliding_attention" if slides else "full_attention" for slides in pattern[:layers]]
    return {"layer_types": kinds}


SIGMOID_KEYS = (GATING, "expert_weights_norm")
RECURRENT = "attention.recurrent_layers"


def by_sigmoids(get: Callable[[str], Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Reads how experts are chosen, which must be by sigmoids."""
    if (function := get(GATING)) not in (None, SIGMOID):
        raise CompileError(f"{GATING}={function!r:.40} is not supported, expected {SIGMOID}, a sigmoid")
    return {"norm_topk_prob": bool(get("expert_weights_norm"))}


def linear_by_layer(get: Callable[[str], Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Reads which layers have linear attention, where the file says it; layers that predict further tokens follow."""
    flags, layers = get(RECURRENT), config["num_hidden_layers"]
    if flags is None:
        return {}
    if not isinstance(flags, list) or len(flags) < layers:
        raise CompileError(f"{RECURRENT} is {flags!r:.80}, expected one flag for each of {layers} layers")
    return {"layer_types": ["linear_attention" if linear else "full_attention" for linear in flags[:layers]]}


def not_normalised(get: Callable[[str], Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The shares of the chosen experts are not divided by their sum."""
    return {"norm_topk_prob": False}
