"""Falcon-H1: attention and a state-space layer side by side in every layer, with factors that go into weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..common.errors import CompileError
from ..family import Family, Gguf
from ..model_config import ModelConfig
from . import bamba
from .shared.dense import CONTRACT, KEYS, TENSORS, TINY
from .shared.state_space import GGUF_KEYS, gguf_names, state_space, tensors, with_states
from .shared.state_space import KEYS as STATE_KEYS
from .shared.state_space import TINY as STATE_TINY

_LAYER = "model.layers.{layer}"
_FACTORS = (
    *("attention_in_multiplier", "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier"),
    *("ssm_out_multiplier", "embedding_multiplier", "lm_head_multiplier"),
)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    if (len(flags["mlp_multipliers"]), len(flags["ssm_multipliers"])) != (2, 5):
        raise CompileError("config.json: mlp_multipliers must be 2 numbers, and ssm_multipliers 5")
    gate, down = flags["mlp_multipliers"]
    before = flags["attention_in_multiplier"]  # of what q, k and v are made of
    attention = Attention(
        scale=before**2 * flags["key_multiplier"] * config.head_dim**-0.5,
        out_scale=before * flags["attention_out_multiplier"],
    )
    norm: Literal["before", "behind"] = "before" if flags["mamba_norm_before_gate"] else "behind"
    net = state_space(
        config,
        flags["mamba_d_ssm"],
        norm=norm if flags["mamba_rms_norm"] else None,
        scales=tuple(flags["ssm_in_multiplier"] * each for each in flags["ssm_multipliers"]),
        out_scale=flags["ssm_out_multiplier"],
        beside=True,
    )
    return attention, net, Mlp(gate_scale=gate, out_scale=down)


def _expanded(values: Mapping[str, Any]) -> int:
    return int(values["mamba_expand"] * values["hidden_size"])


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"embedding_scale": values["embedding_multiplier"], "logit_scale": values["lm_head_multiplier"]}


_GGUF = Gguf(
    arch="falcon-h1",
    names={
        **gguf_names("mamba"),
        "output_norm": "model.final_layernorm",
        **dict.fromkeys(("ffn_norm", "ffn_norm.weight"), "pre_ff_layernorm.weight"),  # the converter writes the former
        **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
    },
    keys={**GGUF_KEYS, "ssm.inner_size": "mamba_d_ssm"},
    derived=lambda get, config: {"mamba_norm_before_gate": False},  # the factors are in the weights of a file
)
FAMILY = Family(
    model_type="falcon_h1",
    architecture="FalconH1ForCausalLM",
    title="Falcon-H1",
    models="Falcon-H1 0.5B to 34B",
    has="attention and a [state-space layer](compile.md#state-space-layers) of `mamba_d_ssm` values side by side in "
    "every layer, with a norm (`mamba_rms_norm`) before the gates or behind (`mamba_norm_before_gate`), or without; "
    "factors of embedding, attention, MLP, state-space layers and logits",
    keys=(
        *KEYS,
        *STATE_KEYS,
        *(Key(name, "number", absent=1.0) for name in _FACTORS),
        Key("num_key_value_heads", absent=8),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=8192),
        Key("mamba_d_ssm", absent=1024, null=_expanded),
        Key("mamba_rms_norm", "flag", absent=False),
        Key("mamba_norm_before_gate", "flag", absent=True),
        Key("mlp_multipliers", "numbers", absent=(1.0,) * 2, null=(1.0,) * 2),
        Key("ssm_multipliers", "numbers", absent=(1.0,) * 5, null=(1.0,) * 5),
        *(Only(name, False) for name in ("attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias")),
    ),
    layer=_layer,
    tensors={**TENSORS, **bamba.MLP, **tensors(f"{_LAYER}.mamba")},
    contract=with_states(CONTRACT),
    gguf=_GGUF,
    folded=_folded,
    tiny={
        **TINY,
        **STATE_TINY,
        "mamba_d_ssm": 320,
        "mamba_rms_norm": True,
        "mamba_norm_before_gate": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        **{name: 0.4 + 0.2 * index for index, name in enumerate(_FACTORS)},
        "mlp_multipliers": [0.9, 0.6],
        "ssm_multipliers": [0.7, 1.2, 0.8, 0.9, 1.1],
    },
)
