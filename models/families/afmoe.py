"""Trinity of Arcee: gates on what attention gives, norms around it, and experts beside a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key
from ..common.config_rules import Windows, window_of_most_layers
from ..family import Family, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.deepseek_experts import EXPERT_TENSORS
from .shared.dense import KEYS, TENSORS, TINY

_LAYER = "model.layers.{layer}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags, window = config.flags, config.windows[layer]
    attention = Attention(
        qk_norm=True,
        qkv_bias=flags["attention_bias"],
        out_bias=flags["attention_bias"],
        window=window,
        rotated=window is not None,
        out_gate="element",
        gate_function="sigmoid",
        out_norm=True,
    )
    if layer < flags["num_dense_layers"]:
        return attention, Mlp(out_norm=True)
    scale = flags["route_scale"]
    return attention, Moe(order="sigmoid", normalise=True, scale=scale, shared_gate=False, out_norm=True)


def _window(raw: Mapping[str, Any], layers: int) -> Windows:
    pattern = raw.get("global_attn_every_n_layers", 4)
    return window_of_most_layers({"sliding_window": 1024, **raw, "sliding_window_pattern": pattern}, layers)


def _experts(values: Mapping[str, Any]) -> Experts:
    count, chosen, inner = (values[key] for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size"))
    return Experts(count=count, chosen=chosen, inner=inner, shared=inner * values["num_shared_experts"])


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"embedding_scale": values["hidden_size"] ** 0.5 if values["mup_enabled"] else 1.0}


FAMILY = Family(
    model_type="afmoe",
    architecture="AfmoeForCausalLM",
    title="Trinity",
    models="Arcee Trinity Nano, Mini, Large",
    has="norms around attention and MLP, and on the heads of q and k; a gate for each element, whose sigmoid "
    "multiplies what attention gives; `sliding_window` in layers that `layer_types` names, or in all but every "
    "`global_attn_every_n_layers`th, and no rotation in the others; `num_dense_layers`, in the others "
    "`num_experts_per_tok` of `num_experts` MLPs for each token, chosen by sigmoids and a bias, and "
    "`num_shared_experts` shared ones; `mup_enabled`",
    keys=(
        *KEYS,
        Key("head_dim", absent=128),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=16384),
        Key("attention_bias", "flag", absent=False),
        Key("num_dense_layers", "count", absent=1),
        Key("num_experts", absent=64),
        Key("num_experts_per_tok", absent=6),
        Key("num_shared_experts", absent=2),
        Key("moe_intermediate_size", absent=1408),
        Key("route_scale", "number", absent=1.0),
        Key("mup_enabled", "flag", absent=False),
    ),
    window=_window,
    layer=_layer,
    tensors={
        **TENSORS,
        **EXPERT_TENSORS,
        roles.OUT_GATE: plain(f"{_LAYER}.self_attn.gate_proj.weight"),
        roles.ATTENTION_OUT_NORM: plain(f"{_LAYER}.post_attention_layernorm.weight"),
        roles.MLP_NORM: plain(f"{_LAYER}.pre_mlp_layernorm.weight"),
        roles.MLP_OUT_NORM: plain(f"{_LAYER}.post_mlp_layernorm.weight"),
        roles.ROUTER: plain(f"{_LAYER}.mlp.router.gate.weight"),
        roles.ROUTER_CHOICE: plain(f"{_LAYER}.mlp.expert_bias"),
    },
    experts=_experts,
    folded=_folded,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "sliding_window": 10,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "route_scale": 2.5,
        "mup_enabled": True,
    },
    other_values=True,
)
