"""Laguna, Poolside's mixture of experts: softplus gates on heads, and a RoPE of their own in layers with a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..common.config_rules import (
    Rope,
    Windows,
    dense_first,
    dense_layers,
    read_local_rope,
    read_rotary_dim,
    sliding_layers,
    windows_in,
)
from ..common.errors import CompileError
from ..contract import Port
from ..family import Family, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.dense import CONTRACT, KEYS, TENSORS, TINY, expert_tensors

_LAYER = "model.layers.{layer}"
_MLP = f"{_LAYER}.mlp"
_EXPERT, _SHARED = f"{_MLP}.experts.{{expert}}", f"{_MLP}.shared_expert"
_GATES: Mapping[str | bool, Literal["head", "element"]] = {True: "head", "per-head": "head", "per-element": "element"}


def _heads(values: Mapping[str, Any]) -> tuple[int, ...]:
    return (values["num_attention_heads"],) * int(values["num_hidden_layers"])


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    mlps, gating, layers = values["mlp_layer_types"], values["gating"], values["num_hidden_layers"]
    dense_layers(mlps, layers)
    if gating not in _GATES:
        raise CompileError(
            f"config.json: gating={gating!r:.40} is not supported, expected true, per-head or per-element"
        )
    heads, kv_heads = tuple(values["num_attention_heads_per_layer"]), values["num_key_value_heads"]
    key = "config.json: num_attention_heads_per_layer"
    if len(heads) != layers:
        raise CompileError(f"{key} has {len(heads)} numbers, expected one for each of {layers} layers")
    if any(count % kv_heads for count in heads):
        raise CompileError(f"{key}={list(heads)!r:.80}, expected multiples of num_key_value_heads={kv_heads}")
    return {"layer_heads": heads}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = Attention(
        qk_norm=True,
        qkv_bias=flags["attention_bias"],
        out_bias=flags["attention_bias"],
        window=config.windows[layer],
        local_rope=config.windows[layer] is not None,
        out_gate=_GATES[flags["gating"]],
        heads=config.layer_heads[layer],
    )
    if flags["mlp_layer_types"][layer] == "dense":
        return attention, Mlp()
    scale = flags["moe_routed_scaling_factor"]
    return attention, Moe(order="sigmoid", normalise=True, scale=scale, shared_gate=False)


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    types = raw.get("layer_types")
    return windows_in(
        [False] * layers if types is None else sliding_layers(types, layers), raw.get("sliding_window", 512)
    )


def _local_rope(raw: Mapping[str, Any], head_dim: int) -> Rope:
    rope = read_local_rope(raw, head_dim)
    own = {} if raw.get("rope_parameters") is None else raw  # those of a file without any have a share of their own
    return replace(rope, head_dim=read_rotary_dim(own, rope.scaling, 1.0, head_dim))


FAMILY = Family(
    model_type="laguna",
    architecture="LagunaForCausalLM",
    title="Laguna",
    models="Laguna-XS.2, Laguna-S-2.1",
    has="norms on the heads of q and k; a gate for each head, or each element of one (`gating`), whose softplus "
    "multiplies what attention gives; query heads by layer (`num_attention_heads_per_layer`); a window by "
    "`layer_types`, with RoPE of its own; dense layers by `mlp_layer_types`, else `num_experts_per_tok` of "
    "`num_experts` MLPs for each token, chosen by sigmoids and a bias, and a shared one",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8),
        Key("head_dim", absent=128),
        Key("max_position_embeddings", absent=131072),
        Key("attention_bias", "flag", absent=False),
        Key("gating", "choice", absent=True),
        Key("num_attention_heads_per_layer", "sizes", absent=_heads, null=_heads),
        Key("mlp_layer_types", "names", absent=dense_first, null=dense_first),
        Key("num_experts", absent=256, also="num_local_experts"),
        Key("num_experts_per_tok", absent=8),
        Key("moe_intermediate_size", absent=512),
        Key("shared_expert_intermediate_size", absent=512),
        Key("moe_routed_scaling_factor", "number", absent=1.0),
        Only("moe_apply_router_weight_on_input", False),
        Only("moe_router_logit_softcapping", 0.0),
    ),
    window=_windows,
    layer=_layer,
    tensors={
        **TENSORS,
        roles.OUT_GATE: plain(f"{_LAYER}.self_attn.g_proj.weight"),
        roles.ROUTER: plain(f"{_MLP}.gate.weight"),
        roles.ROUTER_CHOICE: plain(f"{_MLP}.experts.e_score_correction_bias"),
        **expert_tensors(_EXPERT, _SHARED),
    },
    contract=replace(CONTRACT, masks=(Port("local_attention_mask", "sliding_attention_mask", ""),)),
    experts=Experts.read,
    folded=_folded,
    rotary=1.0,
    rope_scaling={"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
    local_rope=_local_rope,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-6,
        "sliding_window": 10,
        "layer_types": ["full_attention", "sliding_attention"],
        "num_attention_heads_per_layer": [6, 4],
        "gating": "per-head",
        "mlp_layer_types": ["dense", "sparse"],
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 64,
        "moe_routed_scaling_factor": 2.5,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 500000.0,
                "partial_rotary_factor": 0.5,
                "factor": 8.0,
                "original_max_position_embeddings": 128,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    other_values=True,
)
