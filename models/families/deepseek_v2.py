"""DeepSeek-V2 and V2-Lite: latent attention, and behind the first layers experts, chosen by a softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..common.errors import CompileError
from ..family import Family
from ..model_config import Experts, ModelConfig
from .shared import latent
from .shared.deepseek_experts import EXPERT_TENSORS, EXPERT_TINY, experts_of, groups_of


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = latent.attention(config, in_pairs=True)
    if layer < flags["first_k_dense_replace"]:
        return attention, Mlp()
    groups = None if flags["topk_method"] == "greedy" else groups_of(flags)
    scale = flags["routed_scaling_factor"]
    return attention, Moe(order="softmax_topk", scale=scale, shared_gate=False, groups=groups)


def _experts(values: Mapping[str, Any]) -> Experts:
    method = values["topk_method"]
    if method not in ("greedy", "group_limited_greedy"):
        raise CompileError(f"topk_method={method!r} is not supported, expected greedy or group_limited_greedy")
    return experts_of({**values, "n_group": 1, "topk_group": 1} if method == "greedy" else values)


FAMILY = Family(
    model_type="deepseek_v2",
    architecture="DeepseekV2ForCausalLM",
    title="DeepSeek-V2",
    models="DeepSeek-V2, V2-Lite, V2.5, DeepSeek-Coder-V2",
    has="[latent attention](compile.md#latent-attention), `q_lora_rank` or a direct q, `attention_bias`; "
    "`mscale_all_dim` of YaRN; `first_k_dense_replace` dense layers, in the others `num_experts_per_tok` of "
    "`n_routed_experts` MLPs for each token, by `topk_method` from all or from `topk_group` of `n_group` groups, and "
    "`n_shared_experts` shared ones",
    keys=(
        *latent.keys(),
        Key("max_position_embeddings", absent=2048),
        Key("n_routed_experts", absent=64, also="num_experts"),
        Key("n_shared_experts", absent=2),
        Key("num_experts_per_tok"),
        Key("moe_intermediate_size", absent=1407),
        Key("routed_scaling_factor", "number", absent=1.0),
        Key("topk_method", "choice", absent="greedy", null="greedy"),
        Key("n_group", absent=1, null=1),
        Key("topk_group", absent=1, null=1),
        Key("first_k_dense_replace", "count", absent=0),
        Only("norm_topk_prob", False),
        Only("scoring_func", "softmax"),
        Only("moe_layer_freq", 1),
        Only("mlp_bias", False),
    ),
    layer=_layer,
    tensors={**latent.TENSORS, **EXPERT_TENSORS},
    contract=latent.CONTRACT,
    experts=_experts,
    folded=latent.sizes,
    other_values=True,
    tiny={
        **latent.TINY,
        **EXPERT_TINY,
        "q_lora_rank": None,
        "num_experts_per_tok": 3,  # of more groups than are kept, if these were not chosen first
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
    },
)
