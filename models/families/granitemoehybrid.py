"""Granite 4.0: state-space layers between a few with attention, with experts or without; or attention alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key
from ..common.errors import CompileError
from ..family import HEADS_BY_LAYER
from ..model_config import Experts, ModelConfig
from ..weights import roles
from . import granite, granitemoe, granitemoeshared
from .shared.dense import CONTRACT
from .shared.gguf import heads_by_layer
from .shared.state_space import GGUF_KEYS, KEYS, TINY, gguf_names, layer_kinds, state_space, tensors, with_states

_KINDS = ("linear_attention", "full_attention")
_DOWN = "shared_mlp.output_linear"
_GRANITE = granitemoeshared.FAMILY


def _mixer(config: ModelConfig, layer: int) -> Block:
    flags = config.flags
    kinds = layer_kinds("layer_types", flags["layer_types"], config.num_layers, _KINDS)
    if kinds[layer] == "full_attention":
        bias, rotated = flags["attention_bias"], flags["position_embedding_type"] == "rope"
        return Attention(qkv_bias=bias, out_bias=bias, scale=flags["attention_multiplier"], rotated=rotated)
    bias, residual = flags["mamba_proj_bias"], flags["residual_multiplier"]
    inner = flags["mamba_expand"] * config.hidden_size
    epsilon = config.rms_norm_eps * residual**2  # hidden states alone are divided by the multiplier
    return state_space(config, inner, epsilon=epsilon, in_bias=bias, out_bias=bias)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    experts = Moe(order="topk_softmax", shared_gate=False)
    return _mixer(config, layer), Mlp() if config.experts is None else experts


def _experts(values: Mapping[str, Any]) -> Experts | None:
    read = granitemoe.FAMILY.experts
    assert read is not None
    if not values["num_local_experts"]:
        return None
    if not values["num_experts_per_tok"]:
        raise CompileError(
            f"config.json: num_experts_per_tok=0 of {values['num_local_experts']} experts, expected some"
        )
    return read(values)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    positions = values["position_embedding_type"]
    if positions not in ("rope", "nope"):
        raise CompileError(f"config.json: position_embedding_type={positions!r:.40}, expected rope or nope")
    inner = values["intermediate_size" if values["num_local_experts"] else "shared_intermediate_size"]
    return {"intermediate_size": inner, **granite.folded(values)}


def _all_states(values: Mapping[str, Any]) -> tuple[str, ...]:
    return ("linear_attention",) * int(values["num_hidden_layers"])


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Files of this architecture have state-space layers and no rotation; those without are of the architecture of
    Granite 3."""
    inner, hidden = get("ssm.inner_size"), config["hidden_size"]
    if not isinstance(inner, int) or inner < 1 or inner % hidden:
        raise CompileError(f"ssm.inner_size={inner!r:.40}, expected a multiple of {hidden}, embedding_length")
    kinds = ["full_attention" if count else "linear_attention" for count in heads_by_layer(get, config)]
    return {
        "layer_types": kinds,
        "mamba_expand": inner // hidden,
        "position_embedding_type": "nope",
        "num_local_experts": config.get("num_experts", 0),
        "shared_intermediate_size": get("expert_shared_feed_forward_length"),
    }


_MOE = granitemoe.FAMILY.gguf
assert _MOE is not None
FAMILY = replace(
    _GRANITE,
    model_type="granitemoehybrid",
    architecture="GraniteMoeHybridForCausalLM",
    title="Granite 4",
    models="Granite 4.0 350M, 1B, Micro (dense, also their H variants), H-Tiny and H-Small (MoE)",
    has="[state-space layers](compile.md#state-space-layers) and attention by `layer_types`, with rotation only where "
    "`position_embedding_type` is `rope`; the multipliers of Granite; a shared MLP of `shared_intermediate_size` in "
    "each layer, beside `num_experts_per_tok` of `num_local_experts` others, or with 0 of them alone",
    keys=(
        *_GRANITE.keys,
        *KEYS,
        Key("mamba_proj_bias", "flag", absent=False),
        Key("num_local_experts", "count", absent=8),
        Key("num_experts_per_tok", "count", absent=2),
        Key("shared_intermediate_size", "count", absent=1024),
        Key("position_embedding_type", "choice", absent="nope", null="nope"),
        Key("layer_types", "names", absent=_all_states, null=_all_states, also="layers_block_type"),
    ),
    layer=_layer,
    tensors={
        **_GRANITE.tensors,
        **tensors("model.layers.{layer}.mamba"),
        roles.GATE_UP: _GRANITE.tensors[roles.SHARED_GATE_UP],
        roles.DOWN: _GRANITE.tensors[roles.SHARED_DOWN],
    },
    contract=with_states(CONTRACT),
    gguf=replace(
        _MOE,
        arch="granitehybrid",
        names={**_MOE.names, **gguf_names("mamba"), "ffn_down": _DOWN, "ffn_down_shexp": _DOWN},
        joined=(
            ("shared_mlp.input_linear.weight", ("ffn_gate_shexp.weight", "ffn_up_shexp.weight")),
            ("shared_mlp.input_linear.weight", ("ffn_gate.weight", "ffn_up.weight")),  # without experts
        ),
        keys={**_MOE.keys, **GGUF_KEYS},
        also=(HEADS_BY_LAYER, "expert_count", "expert_shared_feed_forward_length"),
        derived=_of_gguf,
    ),
    experts=_experts,
    folded=_folded,
    tiny={
        **_GRANITE.tiny,
        **TINY,
        "num_hidden_layers": 4,
        "position_embedding_type": "nope",
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
)
