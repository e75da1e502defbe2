"""DeepSeek-V3 and R1: latent attention, and experts in groups, chosen by sigmoids and a bias."""

from __future__ import annotations

from ..blocks import Block
from ..common.config_keys import Key
from ..family import Family
from ..model_config import ModelConfig
from .shared import latent
from .shared.deepseek_experts import EXPERT_TENSORS, EXPERT_TINY, expert_keys, experts_of, mlp_or_experts


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = latent.attention(config, in_pairs=flags["rope_interleave"])
    return attention, mlp_or_experts(config, layer < flags["first_k_dense_replace"])


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
    experts=experts_of,
    folded=latent.sizes,
    other_values=True,
    tiny={**latent.TINY, **EXPERT_TINY, "n_group": 4, "topk_group": 2},
)
