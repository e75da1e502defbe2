"""GLM-4.7-Flash: the latent attention of DeepSeek-V3 with the experts of GLM-4.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Block
from ..common.config_keys import Key
from ..common.config_rules import dense_first, dense_layers
from ..family import Family
from ..model_config import ModelConfig
from .shared import latent
from .shared.deepseek_experts import EXPERT_TENSORS, EXPERT_TINY, expert_keys, experts_of, mlp_or_experts


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = latent.attention(config, in_pairs=flags["rope_interleave"])
    return attention, mlp_or_experts(config, flags["mlp_layer_types"][layer] == "dense")


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    dense_layers(values["mlp_layer_types"], values["num_hidden_layers"])
    return latent.sizes(values)


FAMILY = Family(
    model_type="glm4_moe_lite",
    architecture="Glm4MoeLiteForCausalLM",
    title="GLM-4 MoE Lite",
    models="GLM-4.7-Flash, without the MTP layer",
    has="as DeepSeek-V3, with dense layers by `mlp_layer_types`, which is the first one if it is absent",
    keys=(
        *latent.keys(query_latent=768, unturned=192, values=256),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=202752),
        *expert_keys(64, 4, 1536, 1.8),
        Key("mlp_layer_types", "names", absent=dense_first, null=dense_first),
        latent.IN_PAIRS,
    ),
    layer=_layer,
    tensors={**latent.TENSORS, **EXPERT_TENSORS},
    contract=latent.CONTRACT,
    experts=experts_of,
    folded=_folded,
    other_values=True,
    tiny={
        **latent.TINY,
        **{key: value for key, value in EXPERT_TINY.items() if key != "first_k_dense_replace"},
        "rms_norm_eps": 1e-5,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    },
)
