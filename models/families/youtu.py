"""Youtu-LLM: the latent attention of DeepSeek-V3 in every layer, and dense MLPs."""

from __future__ import annotations

from ..blocks import Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import no_window
from ..family import Family
from ..model_config import ModelConfig
from .shared.latent import (
    IN_PAIRS,
    LATENT_CONTRACT,
    LATENT_TENSORS,
    LATENT_TINY,
    latent_attention,
    latent_keys,
    latent_sizes,
)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return latent_attention(config, in_pairs=config.flags["rope_interleave"]), Mlp()


FAMILY = Family(
    model_type="youtu",
    architecture="YoutuForCausalLM",
    title="Youtu-LLM",
    models="Youtu-LLM-2B",
    has="[latent attention](compile.md#latent-attention) as DeepSeek-V3",
    keys=(
        *latent_keys(),
        Key("max_position_embeddings", absent=131072),
        Key("tie_word_embeddings", "flag", absent=True),
        IN_PAIRS,
    ),
    window=no_window,
    layer=_layer,
    tensors=LATENT_TENSORS,
    contract=LATENT_CONTRACT,
    folded=latent_sizes,
    other_values=True,
    tiny={**LATENT_TINY, "tie_word_embeddings": True},
)
