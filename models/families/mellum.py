"""Mellum 2, JetBrains' mixture of experts: Qwen3 MoE with a window in some layers, which have a RoPE of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key
from ..common.config_rules import Windows, dense_layers, read_local_rope, sliding_layers, windows_in
from ..model_config import ModelConfig
from . import qwen3_moe
from .shared.dense import KEYS


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    types = raw.get("layer_types")
    sliding = [False] * layers if types is None else sliding_layers(types, layers)
    return windows_in(sliding, raw.get("sliding_window", 1024))


def _all_sparse(values: Mapping[str, Any]) -> tuple[str, ...]:
    return ("sparse",) * int(values["num_hidden_layers"])


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    dense_layers(values["mlp_layer_types"], values["num_hidden_layers"])
    return {}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags, window = config.flags, config.windows[layer]
    bias = flags["attention_bias"]
    attention = Attention(qk_norm=True, qkv_bias=bias, out_bias=bias, window=window, local_rope=window is not None)
    if flags["mlp_layer_types"][layer] == "dense":
        return attention, Mlp()
    return attention, Moe(order="softmax_topk", normalise=flags["norm_topk_prob"])


_YARN = {"factor": 8.0, "original_max_position_embeddings": 128}
_QWEN = qwen3_moe.FAMILY
FAMILY = replace(
    _QWEN,
    model_type="mellum",
    architecture="MellumForCausalLM",
    title="Mellum 2",
    models="Mellum 2 12B-A2.5B, without the MTP layer",
    has="as Qwen3 MoE; a window by `layer_types`, with RoPE of its own; dense layers by `mlp_layer_types`",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=4),
        Key("head_dim", absent=128),
        Key("max_position_embeddings", absent=131072),
        Key("attention_bias", "flag", absent=False),
        Key("num_experts", absent=64, also="num_local_experts"),
        Key("num_experts_per_tok", absent=8),
        Key("moe_intermediate_size", absent=896),
        Key("norm_topk_prob", "flag", absent=True),
        Key("mlp_layer_types", "names", absent=_all_sparse, null=_all_sparse),
    ),
    window=_windows,
    layer=_layer,
    folded=_folded,
    gguf=None,
    rope_theta=500000.0,
    local_rope=read_local_rope,
    tiny={
        **{key: value for key, value in _QWEN.tiny.items() if key != "rope_theta"},
        "sliding_window": 10,
        "layer_types": ["full_attention", "sliding_attention"],
        "mlp_layer_types": ["dense", "sparse"],
        "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, **_YARN},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
)
