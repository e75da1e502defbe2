"""MiniCPM3: latent attention whose heads turn by halves, and the factors of MiniCPM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family
from ..model_config import ModelConfig
from .minicpm import TINY_FACTORS, factors, folded
from .shared import latent
from .shared.dense import hidden_per_head


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return latent.attention(config, in_pairs=False), Mlp()


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**latent.sizes(values), **folded(values)}


FAMILY = Family(
    model_type="minicpm3",
    architecture="MiniCPM3ForCausalLM",
    title="MiniCPM3",
    models="MiniCPM3-4B",
    has="[latent attention](compile.md#latent-attention), which does not turn neighbours together; `scale_emb`, "
    "`scale_depth` and `dim_model_base`",
    keys=(
        *latent.keys(256, 768, 64, 32),
        Key("v_head_dim", absent=hidden_per_head, null=hidden_per_head),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=32768),
        Key("tie_word_embeddings", "flag", absent=True),
        *factors(12, 1.4, 256),
        Only("mlp_bias", False),
    ),
    layer=_layer,
    tensors=latent.TENSORS,
    contract=latent.CONTRACT,
    folded=_folded,
    other_values=True,
    tiny={
        **{key: value for key, value in latent.TINY.items() if key != "v_head_dim"},
        "hidden_size": 384,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        **TINY_FACTORS,
    },
)
