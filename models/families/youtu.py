"""Youtu-LLM: the latent attention of DeepSeek-V3 in every layer, and dense MLPs."""

from __future__ import annotations

from ..blocks import Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared import latent


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return latent.attention(config, in_pairs=config.flags["rope_interleave"]), Mlp()


FAMILY = Family(
    model_type="youtu",
    architecture="YoutuForCausalLM",
    title="Youtu-LLM",
    models="Youtu-LLM-2B",
    has="[latent attention](compile.md#latent-attention) as DeepSeek-V3",
    keys=(
        *latent.keys(),
        Key("max_position_embeddings", absent=131072),
        Key("tie_word_embeddings", "flag", absent=True),
        latent.IN_PAIRS,
    ),
    layer=_layer,
    tensors=latent.TENSORS,
    contract=latent.CONTRACT,
    gguf=Gguf(
        arch="deepseek2",
        head=latent.GGUF_HEAD,
        joined=latent.GGUF_JOINED,
        names=latent.GGUF_NAMES,
        also=(*latent.GGUF_ALSO, "expert_shared_count", "expert_feed_forward_length"),
        derived=latent.of_gguf,
    ),
    folded=latent.sizes,
    other_values=True,
    tiny={**latent.TINY, "tie_word_embeddings": True},
)
