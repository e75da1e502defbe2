"""Llama 4, its language model: norms of heads without weights, layers that do not turn, one expert and a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..common.errors import CompileError
from ..family import Family, gate_up, plain
from ..model_config import ContextLimit, Experts, ModelConfig
from ..weights import roles
from .shared.dense import KEYS, QKV_IN_PAIRS, TENSORS, TINY, all_heads, expert_tensors, hidden_per_head

_MLP = "model.layers.{layer}.feed_forward"
_EXPERT, _SHARED = f"{_MLP}.experts.{{expert}}", f"{_MLP}.shared_expert"
_CHUNKED, _FULL = "chunked_attention", "full_attention"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    bias, rotated = flags["attention_bias"], _rotated_layers(flags, config.num_layers)[layer] != 0
    attention = Attention(
        qkv_bias=bias,
        out_bias=bias,
        rotated=rotated,
        qk_norm=flags["use_qk_norm"] and rotated,
        late_norm=True,
        unit_heads=True,
        grows=flags["attn_temperature_tuning"] and not rotated,
    )
    if layer not in flags["moe_layers"]:
        return attention, Mlp()
    return attention, Moe(order="sigmoid", choice_bias=False, shared_gate=False, scaled_inputs=True)


def _rotated_layers(values: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """1 for a layer that turns, as `no_rope_layers` has it despite its name; an empty list is none."""
    step = values["no_rope_layer_interval"]
    return tuple(values["no_rope_layers"]) or tuple(int((layer + 1) % step != 0) for layer in range(layers))


def _with_experts(values: Mapping[str, Any]) -> tuple[int, ...]:
    step = values["interleave_moe_layer_step"]
    return tuple(range(step - 1, values["num_hidden_layers"], step))


def _kinds(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_CHUNKED if rotates else _FULL for rotates in _rotated_layers(values, values["num_hidden_layers"]))


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    layers, kinds = values["num_hidden_layers"], values["layer_types"]
    rotated = _rotated_layers(values, layers)
    if len(rotated) < layers:
        raise CompileError(f"config.json: no_rope_layers has {len(rotated)} numbers, expected one for each of {layers}")
    if len(kinds) < layers or not {_CHUNKED, _FULL}.issuperset(kinds):
        raise CompileError(
            f"config.json: layer_types must name {layers} layers, {_CHUNKED} or {_FULL}, got {kinds!r:.80}"
        )
    limit = None
    if _CHUNKED in kinds[:layers]:
        tokens = values["attention_chunk_size"]
        reason = f"attention_chunk_size={tokens} of config.json hides tokens of a longer context from each other"
        limit = ContextLimit(tokens=tokens, reason=f"{reason}, which is not supported")
    return {"intermediate_size": values["intermediate_size_mlp"], "context_limit": limit}


def _experts(values: Mapping[str, Any]) -> Experts:
    inner = values["intermediate_size"]
    return Experts(count=values["num_local_experts"], chosen=1, inner=inner, shared=inner)


FAMILY = Family(
    model_type="llama4",
    architecture="Llama4ForConditionalGeneration",
    text_architecture="Llama4ForCausalLM",
    title="Llama 4",
    models="Llama 4 Scout and Maverick, the language model, in contexts of 8192 tokens",
    has="RoPE rotates pairs of neighbours, and nothing in every `no_rope_layer_interval`th layer or where "
    "`no_rope_layers` is 0; there q grows with its position (`attn_temperature_tuning`, `attn_scale`, `floor_scale`), "
    "in the others norms without weights on the heads of q and k behind RoPE (`use_qk_norm`); `attention_bias`; layers "
    "of `moe_layers`, or every `interleave_moe_layer_step`th, have a shared expert and one of `num_local_experts`, "
    "which reads its input times the sigmoid of the router; a context beyond `attention_chunk_size` is refused",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8, null=all_heads),
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
        Key("intermediate_size_mlp", absent=16384),
        Key("attention_bias", "flag", absent=False),
        Only("num_experts_per_tok", 1),
        Key("num_local_experts", absent=16),
        Key("interleave_moe_layer_step", absent=1),
        Key("moe_layers", "layers", absent=_with_experts, null=_with_experts),
        Key("use_qk_norm", "flag", absent=True),
        Key("no_rope_layer_interval", absent=4),
        Key("no_rope_layers", "layers", absent=(), null=()),
        Key("layer_types", "names", absent=_kinds, null=_kinds),
        Key("attention_chunk_size", absent=8192),
        Key("attn_temperature_tuning", "flag", absent=True),
        Key("floor_scale", absent=8192),
        Key("attn_scale", "number", absent=0.1),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        **QKV_IN_PAIRS,
        roles.GATE_UP: gate_up(_MLP),
        roles.DOWN: plain(f"{_MLP}.down_proj.weight"),
        roles.ROUTER: plain(f"{_MLP}.router.weight"),
        **expert_tensors(_EXPERT, _SHARED),
    },
    experts=_experts,
    folded=_folded,
    rope_theta=500000.0,
    nested="text_config",
    packed_experts="columns",
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "intermediate_size": 128,
        "intermediate_size_mlp": TINY["intermediate_size"],
        "num_local_experts": 8,
        "num_experts_per_tok": 1,
        "moe_layers": [1],
        "no_rope_layers": [1, 0],
        "attention_chunk_size": 4096,
        "floor_scale": 16,
        "attn_scale": 0.1,
    },
    other_values=True,
)
