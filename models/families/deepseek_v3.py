"""DeepSeek-V3 and R1: latent attention, and experts in groups, chosen by sigmoids and a bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..blocks import Block
from ..common.config_keys import Key
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared import latent
from .shared.deepseek_experts import (
    EXPERT_TENSORS,
    EXPERT_TINY,
    GGUF_KEYS,
    GROUPS,
    expert_keys,
    experts_of,
    groups_of_gguf,
    mlp_or_experts,
)
from .shared.gguf import GATING, SIGMOID, SIGMOID_KEYS, by_sigmoids, shared_expert


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = latent.attention(config, in_pairs=flags["rope_interleave"])
    return attention, mlp_or_experts(config, layer < flags["first_k_dense_replace"])


def fits(get: Callable[[str], Any]) -> bool:
    """Experts by sigmoids. Files that do not say it have shares of a sum of 1, which DeepSeek-V2 has not."""
    function = get(GATING)
    return bool(get("expert_weights_norm")) if function is None else function == SIGMOID


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**latent.of_gguf(get, config), **by_sigmoids(get, config), **groups_of_gguf(get)}


FAMILY = Family(
    model_type="deepseek_v3",
    architecture="DeepseekV3ForCausalLM",
    title="DeepSeek-V3",
    models="DeepSeek-V3, R1, V3.1, Kimi K2 (`kimi_k2`), Moonlight, without the MTP layer",
    other_types=("kimi_k2",),
    has="[latent attention](compile.md#latent-attention), `q_lora_rank` or a direct q, `attention_bias`; "
    "`rope_interleave`; `mscale_all_dim` of YaRN; `first_k_dense_replace` dense layers, in the others "
    "`num_experts_per_tok` of `n_routed_experts` MLPs for each token, chosen by sigmoids and a bias in `topk_group` of "
    "`n_group` groups, and `n_shared_experts` shared ones",
    keys=(
        *latent.keys(),
        Key("max_position_embeddings", absent=4096),
        *expert_keys(256, 8, 2048, 2.5, (8, 4)),
        Key("first_k_dense_replace", "count", absent=3),
        latent.IN_PAIRS,
    ),
    layer=_layer,
    tensors={**latent.TENSORS, **EXPERT_TENSORS},
    contract=latent.CONTRACT,
    gguf=Gguf(
        arch="deepseek2",
        head=latent.GGUF_HEAD,
        fits=fits,
        joined=latent.GGUF_JOINED,
        names={
            **latent.GGUF_NAMES,
            "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
            **shared_expert("mlp.shared_experts"),
        },
        keys=GGUF_KEYS,
        also=(*latent.GGUF_ALSO, *SIGMOID_KEYS, *GROUPS),
        derived=_of_gguf,
    ),
    experts=experts_of,
    folded=latent.sizes,
    other_values=True,
    tiny={**latent.TINY, **EXPERT_TINY, "n_group": 4, "topk_group": 2},
)
