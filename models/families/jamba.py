"""Jamba: state-space layers whose channels have states each, attention in a few layers, experts in some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mamba, Mlp, Moe
from ..common.config_keys import Key
from ..common.errors import CompileError
from ..family import Family, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .bamba import MLP
from .shared.dense import CONTRACT, KEYS, TENSORS, TINY, expert_tensors
from .shared.state_space import layer_kinds, rank_of, selective_tensors, usual_rank, with_states

_LAYER = "model.layers.{layer}"
_EXPERT = f"{_LAYER}.feed_forward.experts.{{expert}}"


def _is_at(config: ModelConfig, layer: int, what: str) -> bool:
    """Whether a layer is one of those in a period."""
    period, offset = config.flags[f"{what}_layer_period"], config.flags[f"{what}_layer_offset"]
    if offset >= period:
        raise CompileError(f"config.json: {what}_layer_offset={offset} must be below {what}_layer_period={period}")
    return bool(layer % period == offset)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags, layers = config.flags, range(config.num_layers)
    kinds = ["full_attention" if _is_at(config, each, "attn") else "linear_attention" for each in layers]
    layer_kinds("attn_layer_period", kinds, len(layers), sorted(set(kinds)))
    sparse = _is_at(config, layer, "expert") and config.experts is not None
    mlp = Moe(order="softmax_topk") if sparse else Mlp()
    if kinds[layer] == "full_attention":
        return Attention(rotated=False), mlp
    mamba = Mamba(
        inner=flags["mamba_expand"] * config.hidden_size,
        keys=flags["mamba_d_state"],
        rank=rank_of(flags["mamba_dt_rank"], config.hidden_size),
        taps=flags["mamba_d_conv"],
        conv_bias=flags["mamba_conv_bias"],
        bias=flags["mamba_proj_bias"],
        norms="weights",
        epsilon=config.rms_norm_eps,
    )
    return mamba, mlp


def _experts(values: Mapping[str, Any]) -> Experts | None:
    return Experts.read(values) if values["num_experts"] > 1 else None


FAMILY = Family(
    model_type="jamba",
    architecture="JambaForCausalLM",
    title="Jamba",
    models="Jamba 1.5 and 1.6 Mini and Large, Jamba 2 3B and Mini, Jamba Reasoning 3B",
    has="[state-space layers](compile.md#state-space-layers) of Mamba 1 with norms of steps, B and C, and attention "
    "without RoPE in layers of `attn_layer_period` and `attn_layer_offset`; `num_experts_per_tok` of `num_experts` "
    "MLPs in those of `expert_layer_period` and `expert_layer_offset`; `mamba_conv_bias`, `mamba_proj_bias`",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8),
        Key("max_position_embeddings", absent=262144),
        Key("num_experts", absent=16, also="num_local_experts"),
        Key("num_experts_per_tok", absent=2),
        Key("expert_layer_period", absent=2),
        Key("expert_layer_offset", "count", absent=1),
        Key("attn_layer_period", absent=8),
        Key("attn_layer_offset", "count", absent=4),
        Key("mamba_d_state", absent=16),
        Key("mamba_d_conv", absent=4),
        Key("mamba_expand", absent=2),
        Key("mamba_dt_rank", "size_or_auto", absent=usual_rank),
        Key("mamba_conv_bias", "flag", absent=True),
        Key("mamba_proj_bias", "flag", absent=False),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        **MLP,
        **selective_tensors(f"{_LAYER}.mamba"),
        roles.SSM_RANK_NORM: plain(f"{_LAYER}.mamba.dt_layernorm.weight"),
        roles.SSM_KEY_NORM: plain(f"{_LAYER}.mamba.b_layernorm.weight"),
        roles.SSM_QUERY_NORM: plain(f"{_LAYER}.mamba.c_layernorm.weight"),
        roles.ROUTER: plain(f"{_LAYER}.feed_forward.router.weight"),
        **expert_tensors(_EXPERT),
    },
    contract=with_states(CONTRACT),
    experts=_experts,
    tiny={
        **TINY,
        "num_hidden_layers": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_d_state": 12,
        "mamba_dt_rank": 20,
    },
)
