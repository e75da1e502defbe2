"""Flint: Qwen3 MoE with sinks, experts chosen by sigmoids, a shared one, and rotation in layers with a window alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key
from ..common.config_rules import Windows, sliding_layers, windows_in
from ..family import gate_up, plain
from ..model_config import ModelConfig
from ..weights import roles
from . import qwen3_moe
from .shared.dense import KEYS, all_heads, hidden_per_head

_LAYER = "model.layers.{layer}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags, window = config.flags, config.windows[layer]
    bias = flags["attention_bias"]
    attention = Attention(
        qk_norm=True, qkv_bias=bias, out_bias=bias, window=window, rotated=window is not None, sinks=True
    )
    if layer in flags["mlp_only_layers"] or (layer + 1) % flags["decoder_sparse_step"]:
        return attention, Mlp()
    return attention, Moe(order="sigmoid", choice_bias=False, normalise=flags["norm_topk_prob"], shared_gate=False)


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    """In layers that `layer_types` names, or in all but the first two, every fourth behind them, and the last."""
    types = raw.get("layer_types")
    if types is None:
        slides = [layer >= 2 and layer % 4 != 1 and layer != layers - 1 for layer in range(layers)]
    else:
        slides = sliding_layers(types, layers)
    return windows_in(slides, raw.get("sliding_window", 513))


FAMILY = replace(
    qwen3_moe.FAMILY,
    model_type="flint",
    architecture="FlintForCausalLM",
    title="Flint",
    models="Flint of RecursiveSI",
    has="as Qwen3 MoE, with experts chosen by sigmoids, and a shared one; an attention sink for each head; "
    "`sliding_window` in layers that `layer_types` names, or in most of them, and no rotation in the others",
    keys=(
        *KEYS,
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("num_key_value_heads", absent=4, null=all_heads),
        Key("max_position_embeddings", absent=262144),
        Key("attention_bias", "flag", absent=False),
        *qwen3_moe.EXPERT_KEYS,
        Key("shared_expert_intermediate_size", absent=1024),
        Key("norm_topk_prob", "flag", absent=True),
        Key("mlp_only_layers", "layers", absent=(0, 1), null=(0, 1)),
    ),
    window=_windows,
    layer=_layer,
    tensors={
        **qwen3_moe.FAMILY.tensors,
        roles.SINKS: plain(f"{_LAYER}.self_attn.softmax_offset"),
        roles.SHARED_GATE_UP: gate_up(f"{_LAYER}.mlp.shared_expert"),
        roles.SHARED_DOWN: plain(f"{_LAYER}.mlp.shared_expert.down_proj.weight"),
    },
    gguf=None,
    packed_experts="rows",
    tiny={
        **qwen3_moe.FAMILY.tiny,
        "shared_expert_intermediate_size": 64,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 10,
        "mlp_only_layers": [],
    },
)
