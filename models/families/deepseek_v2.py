"""DeepSeek-V2 and V2-Lite: latent attention, and behind the first layers experts, chosen by a softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..blocks import Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..common.errors import CompileError
from ..family import Family, Gguf
from ..model_config import Experts, ModelConfig
from .deepseek_v3 import fits as v3_fits
from .shared import latent
from .shared.deepseek_experts import (
    EXPERT_TENSORS,
    EXPERT_TINY,
    GGUF_KEYS,
    GROUPS,
    experts_of,
    groups_of,
    groups_of_gguf,
)
from .shared.gguf import GATING, SOFTMAX, shared_expert


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


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    if (function := get(GATING)) not in (None, SOFTMAX):
        raise CompileError(f"{GATING}={function!r:.40} is not supported, expected {SOFTMAX}, a softmax")
    groups = groups_of_gguf(get)
    method = "greedy" if groups["n_group"] == 1 else "group_limited_greedy"
    return {**latent.of_gguf(get, config), **groups, "topk_method": method, "norm_topk_prob": False}


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
    gguf=Gguf(
        arch="deepseek2",
        head=latent.GGUF_HEAD,
        fits=lambda get: not v3_fits(get),
        joined=latent.GGUF_JOINED,
        names={**latent.GGUF_NAMES, **shared_expert("mlp.shared_experts")},
        keys=GGUF_KEYS,
        also=(*latent.GGUF_ALSO, *GROUPS, GATING),
        derived=_of_gguf,
    ),
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
