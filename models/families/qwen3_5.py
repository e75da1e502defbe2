"""Qwen3.5 and 3.6 dense: three layers with linear attention for each with a cache; the language model alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, DeltaNet, Mlp
from ..common.config_keys import Key, Only
from ..common.config_rules import Axes, axes_in_turns
from ..common.errors import CompileError
from ..family import Family, Gguf, Tensors, plain
from ..model_config import ModelConfig
from ..towers.qwen3 import QWEN3_5
from ..weights import roles
from .shared.dense import KEYS, TENSORS
from .shared.gguf import RECURRENT, linear_by_layer
from .shared.state_space import with_states
from .shared.vision_language import CONTRACT, TINY

_LAYER = "model.layers.{layer}"
_NET = f"{_LAYER}.linear_attn"
_MOST = 1 << 24  # numbers in all heads
_KINDS = ("linear_attention", "full_attention")


def usual_layers(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of layers of a config that does not list them: one in so many has a cache."""
    interval = values["full_attention_interval"]
    return tuple(_KINDS[(layer + 1) % interval == 0] for layer in range(values["num_hidden_layers"]))


def mixer(config: ModelConfig, layer: int) -> Block:
    """What mixes tokens in a layer."""
    flags = config.flags
    kinds, key_heads, heads = flags["layer_types"], flags["linear_num_key_heads"], flags["linear_num_value_heads"]
    if len(kinds) != config.num_layers or not set(kinds) <= set(_KINDS):
        raise CompileError(
            f"config.json: layer_types must name {config.num_layers} layers, {' or '.join(_KINDS)}, got {kinds!r:.80}"
        )
    if "full_attention" not in kinds:  # programs learn the context's length from a cache
        raise CompileError(
            f"config.json: none of the {config.num_layers} layers has full_attention, expected one at least; see "
            "layer_types or full_attention_interval"
        )
    if heads % key_heads:
        raise CompileError(
            f"config.json: linear_num_value_heads={heads} is not a multiple of linear_num_key_heads={key_heads}"
        )
    if layer == config.num_layers or kinds[layer] == "full_attention":  # that of multi-token prediction is behind all
        return Attention(qk_norm=True, gated=True)
    return DeltaNet(
        key_heads=key_heads,
        heads=heads,
        keys=flags["linear_key_head_dim"],
        values=flags["linear_value_head_dim"],
        taps=flags["linear_conv_kernel_dim"],
    )


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return mixer(config, layer), Mlp()


def _axes(scaling: Mapping[str, Any], half: int) -> Axes:
    return axes_in_turns({"mrope_section": (11, 11, 10), **scaling}, half)


def _centred(role: roles.Role) -> Tensors:
    """A norm whose weight is stored less 1."""
    return replace(TENSORS[role], offset=1.0)


GGUF_NAMES = {
    "post_attention_norm": "post_attention_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}
GGUF_KEYS = {
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
    "full_attention_interval": "full_attention_interval",
}


def value_sizes(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """GGUF files have the values of all heads as one number."""
    inner, keys, heads = get("ssm.inner_size"), config["linear_num_key_heads"], config["linear_num_value_heads"]
    sizes = (inner, keys, heads)
    if not all(isinstance(size, int) and 0 < size < _MOST for size in sizes) or inner % heads or heads % keys:
        raise CompileError(
            f"ssm.inner_size={inner!r:.40}, ssm.time_step_rank={heads!r:.40} and ssm.group_count={keys!r:.40} must be "
            "positive, each a multiple of the next"
        )
    return {"linear_value_head_dim": inner // heads, "attention_bias": False, **linear_by_layer(get, config)}


FAMILY = Family(
    model_type="qwen3_5",
    architecture="Qwen3_5ForConditionalGeneration",
    text_architecture="Qwen3_5ForCausalLM",
    title="Qwen3.5 dense",
    models="Qwen3.5 and 3.6, 0.8B to 27B, with its MTP layer or without",
    has="gated delta nets in three of four layers, or by `layer_types`; gates on attention; norms stored less 1; a "
    "quarter of each head turns, by positions in time, height and width, `mrope_section` in turns",
    keys=(
        *KEYS,
        Key("head_dim", absent=256, null=256),
        Key("max_position_embeddings", absent=32768),
        Only("attention_bias", False),
        Only("attn_output_gate", True),
        Key("full_attention_interval", absent=4),
        Key("layer_types", "names", absent=usual_layers, null=usual_layers),
        Key("linear_num_key_heads", absent=16),
        Key("linear_num_value_heads", absent=32),
        Key("linear_key_head_dim", absent=128),
        Key("linear_value_head_dim", absent=128),
        Key("linear_conv_kernel_dim", absent=4),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        roles.QKV: replace(TENSORS[roles.QKV], transform="by_heads"),
        **{
            role: _centred(role)
            for role in (roles.ATTENTION_NORM, roles.MLP_NORM, roles.Q_NORM, roles.K_NORM, roles.FINAL_NORM)
        },
        roles.MTP_EMBEDDING_NORM: Tensors("plain", ("mtp.pre_fc_norm_embedding.weight",), offset=1.0),
        roles.MTP_HIDDEN_NORM: Tensors("plain", ("mtp.pre_fc_norm_hidden.weight",), offset=1.0),
        roles.MTP_JOIN: plain("mtp.fc.weight"),
        roles.MTP_FINAL_NORM: Tensors("plain", ("mtp.norm.weight",), offset=1.0),
        roles.DELTA_IN: Tensors("stack", (f"{_NET}.in_proj_qkv.weight", f"{_NET}.in_proj_z.weight")),
        roles.DELTA_GATES: Tensors("stack", (f"{_NET}.in_proj_b.weight", f"{_NET}.in_proj_a.weight")),
        roles.DELTA_TAPS: plain(f"{_NET}.conv1d.weight"),
        roles.DELTA_RATE: Tensors("plain", (f"{_NET}.A_log",), function="minus_exp"),
        roles.DELTA_BIAS: plain(f"{_NET}.dt_bias"),
        roles.DELTA_NORM: plain(f"{_NET}.norm.weight"),
        roles.DELTA_OUT: plain(f"{_NET}.out_proj.weight"),
    },
    contract=with_states(CONTRACT),
    gguf=Gguf(
        arch="qwen35",
        tiled_values=True,
        names=GGUF_NAMES,
        keys=GGUF_KEYS,
        also=(RECURRENT,),
        derived=value_sizes,
    ),
    axes=_axes,
    nested="text_config",
    vision=QWEN3_5,
    rotary=0.25,
    tiny={
        **TINY,
        "num_hidden_layers": 4,
        "head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 48,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
        },
    },
)
