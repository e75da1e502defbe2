"""Mamba: state-space layers whose channels have states each, and nothing else."""

from __future__ import annotations

from ..blocks import Block, Mamba
from ..common.config_keys import Key
from ..family import Family
from ..model_config import ModelConfig
from .shared.state_space import rank_of, selective_tensors, usual_rank
from .shared.states_alone import KEYS, LAYER, SPELLED, STATES, TENSORS, TINY_SIZES, inner_of


def mamba_of(config: ModelConfig) -> Mamba:
    """Returns the block of a layer."""
    flags = config.flags
    return Mamba(
        inner=config.intermediate_size,
        keys=flags["state_size"],
        rank=rank_of(flags["time_step_rank"], config.hidden_size),
        taps=flags["conv_kernel"],
        conv_bias=flags["use_conv_bias"],
        bias=flags["use_bias"],
    )


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return (mamba_of(config),)


FAMILY = Family(
    model_type="mamba",
    architecture="MambaForCausalLM",
    title="Mamba",
    models="Mamba 130M to 2.8B",
    has="[state-space layers](compile.md#state-space-layers) of Mamba 1, and neither attention nor MLPs; `use_bias`, "
    "`use_conv_bias`; any context",
    keys=(
        *KEYS,
        Key("head_dim", absent=2),
        Key("intermediate_size", absent=inner_of),
        Key("state_size", absent=16),
        Key("time_step_rank", "size_or_auto", absent=usual_rank),
        Key("tie_word_embeddings", "flag", absent=True),
    ),
    spelled={**SPELLED, "head_dim": ""},
    layer=_layer,
    tensors={**TENSORS, **selective_tensors(f"{LAYER}.mixer")},
    contract=STATES,
    tiny={**TINY_SIZES, "state_size": 12, "tie_word_embeddings": True},
)
