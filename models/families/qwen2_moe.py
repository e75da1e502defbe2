"""Qwen1.5-MoE and Qwen2-57B-A14B: attention as in Qwen2, and experts as in Qwen3-MoE with a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block
from ..common.config_keys import Key, flag
from ..common.config_rules import Windows, max_window_layers, sliding_layers, windows_in
from ..family import Family, Gguf
from ..model_config import Experts, ModelConfig
from . import qwen3_moe
from .qwen3_5_moe import SHARED_TENSORS
from .shared.dense import KEYS, TINY, all_heads
from .shared.gguf import not_normalised, shared_expert


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    """`use_sliding_window` turns the window on, in layers that `layer_types` names, or else in every other of the first
    `max_window_layers`."""
    types, slides = raw.get("layer_types"), flag("use_sliding_window", raw.get("use_sliding_window", False))
    if types is None:
        sliding = [slides and layer % 2 == 0 and layer < max_window_layers(raw) for layer in range(layers)]
    else:
        sliding = sliding_layers(types, layers)
    return windows_in(sliding, raw.get("sliding_window", 4096) if slides else 0)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    attention = Attention(qkv_bias=config.flags["qkv_bias"], window=config.windows[layer])
    return attention, qwen3_moe.mlp_or_experts(config, layer)


FAMILY = Family(
    model_type="qwen2_moe",
    architecture="Qwen2MoeForCausalLM",
    title="Qwen2 MoE",
    models="Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
    has="`qkv_bias` on q, k, v; experts and dense layers as Qwen3 MoE, with a shared expert with a gate; "
    "`use_sliding_window` in layers that `layer_types` names, or in every other of the first `max_window_layers`",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=16, null=all_heads),
        Key("max_position_embeddings", absent=32768),
        Key("qkv_bias", "flag", absent=True),
        *qwen3_moe.EXPERT_KEYS,
        Key("shared_expert_intermediate_size"),
    ),
    window=_window,
    layer=_layer,
    tensors={**qwen3_moe.FAMILY.tensors, **SHARED_TENSORS},
    gguf=Gguf(
        arch="qwen2moe",
        names={"ffn_gate_inp_shexp": "mlp.shared_expert_gate", **shared_expert("mlp.shared_expert")},
        keys={"expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
        derived=not_normalised,
    ),
    experts=Experts.read,
    tiny={
        **TINY,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 128,
        "norm_topk_prob": False,
        "mlp_only_layers": [0],
    },
)
