"""Mamba 2: state-space layers, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Block
from ..common.config_keys import Key
from ..common.errors import CompileError
from ..family import Family
from ..model_config import ModelConfig
from .shared.state_space import NO_LIMIT, checked, tensors
from .shared.states_alone import KEYS, LAYER, SPELLED, STATES, TENSORS, TINY_SIZES, inner_of


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    block = checked(
        config.intermediate_size,
        heads=flags["mamba_n_heads"],
        groups=flags["n_groups"],
        keys=flags["state_size"],
        taps=flags["conv_kernel"],
        epsilon=config.rms_norm_eps,
        conv_bias=flags["use_conv_bias"],
        in_bias=flags["use_bias"],
        out_bias=flags["use_bias"],
    )
    return (block,)


def _groups(values: Mapping[str, Any]) -> int:
    """What devices share out evenly."""
    return int(values["n_groups"])


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    heads, size, inner = values["mamba_n_heads"], values["head_dim"], inner_of(values)
    if heads * size != inner:
        raise CompileError(f"config.json: {heads} heads of {size} are not the {inner} values of `expand`")
    return {"intermediate_size": inner}


FAMILY = Family(
    model_type="mamba2",
    architecture="Mamba2ForCausalLM",
    title="Mamba 2",
    models="Mamba 2 130M to 2.7B, Mamba-Codestral 7B, in the form of transformers",
    has="[state-space layers](compile.md#state-space-layers), and neither attention nor MLPs; `use_bias`, "
    "`use_conv_bias`; any context",
    keys=(
        Key("n_groups", absent=8),
        *KEYS,
        Key("num_attention_heads", absent=_groups),
        Key("num_key_value_heads", absent=_groups),
        Key("head_dim", absent=64),
        Key("intermediate_size", absent=inner_of),
        Key("mamba_n_heads", absent=128),
        Key("state_size", absent=128),
        Key("tie_word_embeddings", "flag", absent=False),
        NO_LIMIT,
    ),
    spelled={**SPELLED, "intermediate_size": "", "mamba_n_heads": "num_heads"},
    layer=_layer,
    tensors={**TENSORS, **tensors(f"{LAYER}.mixer")},
    contract=STATES,
    folded=_folded,
    tiny={**TINY_SIZES, "num_heads": 8, "head_dim": 48, "n_groups": 2, "state_size": 24, "tie_word_embeddings": False},
)
