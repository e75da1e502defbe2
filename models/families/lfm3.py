"""LFM3: LFM2 with norms behind every block, gates of heads, and windows in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp, ShortConv
from ..common.config_keys import Key
from ..common.config_rules import Rope, Windows, read_local_rope, windows_in
from ..common.errors import CompileError
from ..family import plain
from ..model_config import ModelConfig
from ..weights import roles
from . import lfm2
from .shared.dense import TINY

_LAYER = "model.layers.{layer}"
_KINDS = ("conv", "full_attention", "sliding_attention")
_FULL = {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags, kind = config.flags, config.flags["layer_types"][layer]
    around = flags["use_sandwich_norm"]
    mlp = Mlp(out_norm=around)
    if kind == "conv":
        taps, bias = flags["conv_L_cache"], flags["conv_bias"]
        return ShortConv(channels=config.hidden_size, taps=taps, bias=bias, out_norm=around), mlp
    attention = Attention(
        qk_norm=True,
        qkv_bias=flags["attention_bias"],
        out_bias=flags["attention_bias"],
        window=config.windows[layer],
        local_rope=kind == "sliding_attention",
        out_gate="head" if flags["use_attention_gate"] else None,
        gate_function="sigmoid",
        out_norm=around,
    )
    return attention, mlp


def _types(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Three of four layers have attention or a window, or none in turn, as in LFM3 1.7B."""
    turns = {2: "full_attention", 0: "sliding_attention"}
    layers = range(values["num_hidden_layers"])
    return tuple(turns.get(layer % 4, "conv") if layer else "conv" for layer in layers)


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    types = raw.get("layer_types")
    types = _types({"num_hidden_layers": layers}) if types is None else types
    return windows_in([kind == "sliding_attention" for kind in types], raw.get("sliding_window", 256))


def _local_rope(raw: Mapping[str, Any], head_dim: int) -> Rope:
    if raw.get("rope_parameters") is None:
        return read_local_rope({}, head_dim)
    return read_local_rope(raw, head_dim)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    types, layers = values["layer_types"], values["num_hidden_layers"]
    if len(types) != layers or not set(_KINDS).issuperset(types) or "full_attention" not in types:
        raise CompileError(
            f"config.json: layer_types must name {layers} layers, {', '.join(_KINDS)}, one of them full_attention, got "
            f"{types!r:.80}"
        )
    return lfm2.epsilon(values)


FAMILY = replace(
    lfm2.FAMILY,
    model_type="lfm3",
    architecture="Lfm3ForCausalLM",
    title="LFM3",
    models="LFM3 1.7B",
    has="as LFM2, with norms behind every block (`use_sandwich_norm`), a gate of each head, whose sigmoid multiplies "
    "what attention gives (`use_attention_gate`), and `sliding_window` with a RoPE of its own in layers of "
    "`layer_types`; `attention_bias`",
    keys=(
        *lfm2.SHARED_KEYS,
        Key("num_key_value_heads", absent=4),
        Key("head_dim", absent=128),
        Key("conv_L_cache", absent=7),
        Key("layer_types", "names", absent=_types, null=_types),
        Key("use_sandwich_norm", "flag", absent=True),
        Key("use_attention_gate", "flag", absent=True),
        Key("attention_bias", "flag", absent=False),
    ),
    window=_windows,
    layer=_layer,
    tensors={
        **lfm2.FAMILY.tensors,
        **{
            role: plain(f"{_LAYER}.self_attn.{name}.weight")
            for role, name in (
                (roles.Q_NORM, "q_norm"),
                (roles.K_NORM, "k_norm"),
                (roles.ATTENTION_OUT, "o_proj"),
                (roles.OUT_GATE, "gate_proj"),
            )
        },
        roles.ATTENTION_OUT_NORM: plain(f"{_LAYER}.post_operator_norm.weight"),
        roles.MLP_OUT_NORM: plain(f"{_LAYER}.post_ffn_norm.weight"),
    },
    folded=_folded,
    gguf=None,
    rope_scaling=_FULL,
    local_rope=_local_rope,
    tiny={
        **TINY,
        "num_hidden_layers": 4,
        "head_dim": 64,
        "tie_word_embeddings": True,
        "norm_eps": 1e-5,
        "conv_L_cache": 7,
        "sliding_window": 10,
        "layer_types": ["conv", "full_attention", "conv", "sliding_attention"],
        "pad_token_id": None,
        "rope_parameters": {
            "full_attention": _FULL,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
)
