"""Nemotron-H: layers that are one block each, a state-space layer, attention without positions, or an MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import CONTRACT, KEYS, TENSORS, TINY
from .shared.state_space import NO_LIMIT, checked, layer_kinds, tensors, with_states

_LAYER = "backbone.layers.{layer}"
_NET = f"{_LAYER}.mixer"
_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp"}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    kinds = layer_kinds("layers_block_type", flags["layers_block_type"], config.num_layers, list(_LETTERS.values()))
    if kinds[layer] == "full_attention":
        return (Attention(rotated=False),)
    if kinds[layer] == "mlp":
        return (Mlp(alone="relu2", bias=flags["mlp_bias"]),)
    heads = flags["mamba_num_heads"]
    net = checked(
        heads * flags["mamba_head_dim"],
        heads=heads,
        groups=flags["n_groups"],
        keys=flags["ssm_state_size"],
        taps=flags["conv_kernel"],
        epsilon=config.rms_norm_eps,
        conv_bias=flags["use_conv_bias"],
        in_bias=flags["use_bias"],
        out_bias=flags["use_bias"],
    )
    return (net,)


def _kinds(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of a file that has a letter for each layer; other letters are named by what refuses them."""
    return tuple(_LETTERS.get(letter, letter) for letter in str(values["hybrid_override_pattern"]))


def _count(values: Mapping[str, Any]) -> int:
    return len(values["layers_block_type"])


FAMILY = Family(
    model_type="nemotron_h",
    architecture="NemotronHForCausalLM",
    title="Nemotron-H",
    models="Nemotron-H 4B to 56B, Nemotron Nano 2 9B and 12B",
    has="layers that are one block each by `hybrid_override_pattern` or `layers_block_type`: a "
    "[state-space layer](compile.md#state-space-layers), attention without positions, or an MLP with relu2 and no "
    "gate (experts are refused); `use_bias`, `use_conv_bias`, `mlp_bias`; `time_step_min` limits no step, as when "
    "transformers decodes (in its prefill it does)",
    keys=(
        Key("hybrid_override_pattern", "choice", absent=""),
        Key("layers_block_type", "names", absent=_kinds, null=_kinds, also="layer_types"),
        *KEYS,
        Key("num_hidden_layers", absent=_count),
        Key("num_key_value_heads", absent=8),
        Key("head_dim", absent=128, also="attention_head_dim"),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=4096),
        Key("mamba_num_heads", absent=128),
        Key("mamba_head_dim", absent=64),
        Key("ssm_state_size", absent=128, also="mamba_state_dim"),
        Key("n_groups", absent=8, also="mamba_n_groups"),
        Key("conv_kernel", absent=4, also="mamba_d_conv"),
        Key("use_conv_bias", "flag", absent=True, also="mamba_conv_bias"),
        Key("use_bias", "flag", absent=False),
        Key("mlp_bias", "flag", absent=False),
        Only("attention_bias", False),
        Only("mlp_hidden_act", "relu2"),
        Only("mamba_hidden_act", "silu"),
        NO_LIMIT,
    ),
    spelled={"rms_norm_eps": "layer_norm_epsilon"},
    layer=_layer,
    tensors={
        **TENSORS,
        **tensors(_NET),
        roles.EMBEDDING: plain("backbone.embeddings.weight"),
        roles.FINAL_NORM: plain("backbone.norm_f.weight"),
        roles.ATTENTION_NORM: plain(f"{_LAYER}.norm.weight"),
        roles.MLP_NORM: plain(f"{_LAYER}.norm.weight"),
        roles.QKV: Tensors("stack", tuple(f"{_NET}.{part}_proj.weight" for part in "qkv")),
        roles.ATTENTION_OUT: plain(f"{_NET}.o_proj.weight"),
        roles.UP: plain(f"{_NET}.up_proj.weight"),
        roles.UP_BIAS: plain(f"{_NET}.up_proj.bias"),
        roles.DOWN: plain(f"{_NET}.down_proj.weight"),
        roles.DOWN_BIAS: plain(f"{_NET}.down_proj.bias"),
    },
    contract=with_states(CONTRACT),
    tiny={
        **{key: value for key, value in TINY.items() if key != "num_hidden_layers"},
        "head_dim": 32,
        "layer_norm_epsilon": 1e-5,
        "layers_block_type": ["linear_attention", "full_attention", "mlp"] * 2,
        "mamba_num_heads": 8,
        "mamba_head_dim": 24,
        "ssm_state_size": 24,
        "n_groups": 2,
        "time_step_min": 1e-30,  # in prefill of transformers a limit, which packages do not have
    },
)
