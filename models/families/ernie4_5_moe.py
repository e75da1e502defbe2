"""ERNIE 4.5 with a mixture of experts, 21B-A3B and 300B-A47B: chosen by a softmax and a bias, beside shared ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..family import Gguf, Tensors
from ..model_config import Experts, ModelConfig
from ..weights import roles
from . import ernie4_5, glm4_moe
from .shared.dense import hidden_per_head
from .shared.gguf import shared_expert

_MLP = "model.layers.{layer}.mlp"
_DENSE = ernie4_5.FAMILY
_OF_EXPERTS = (roles.ROUTER, roles.EXPERT_GATE_UP, roles.EXPERT_DOWN, roles.SHARED_GATE_UP, roles.SHARED_DOWN)


def _last(values: Mapping[str, Any]) -> int:
    return int(values["num_hidden_layers"]) - 1


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    last = flags["moe_layer_end_index"]
    sparse = (layer + 1) % flags["moe_layer_interval"] == 0
    sparse &= flags["moe_layer_start_index"] <= layer <= (config.num_layers - 1 if last == -1 else last)
    return Attention(), Moe(order="softmax", normalise=True, shared_gate=False) if sparse else Mlp()


def _experts(values: Mapping[str, Any]) -> Experts:
    inner = values["moe_intermediate_size"]
    return Experts(
        count=values["moe_num_experts"],
        chosen=values["moe_k"],
        inner=inner,
        shared=inner * values["moe_num_shared_experts"] or None,
    )


FAMILY = replace(
    _DENSE,
    model_type="ernie4_5_moe",
    architecture="Ernie4_5_MoeForCausalLM",
    title="ERNIE 4.5 MoE",
    models="ERNIE 4.5 21B-A3B, 300B-A47B, the language model",
    has="as ERNIE 4.5 dense; in layers from `moe_layer_start_index` to `moe_layer_end_index`, by `moe_layer_interval`, "
    "`moe_k` of `moe_num_experts` MLPs for each token, chosen by a softmax and a bias, and `moe_num_shared_experts` "
    "shared ones",
    keys=(
        *_DENSE.keys,
        Key("num_key_value_heads", absent=4),
        Key("head_dim", absent=hidden_per_head, null=hidden_per_head),
        Key("moe_num_experts", absent=64, also="num_experts"),
        Key("moe_k", absent=6, also="num_experts_per_tok"),
        Key("moe_intermediate_size", absent=1536),
        Key("moe_num_shared_experts", "count", absent=2),
        Key("moe_layer_start_index", "layer", absent=1),
        Key("moe_layer_end_index", "until", absent=_last, null=_last),
        Key("moe_layer_interval", absent=1),
        Only("moe_norm_min", 1e-12),
    ),
    layer=_layer,
    tensors={
        **_DENSE.tensors,
        **{role: glm4_moe.FAMILY.tensors[role] for role in _OF_EXPERTS},
        roles.ROUTER_CHOICE: Tensors("row", (f"{_MLP}.moe_statics.e_score_correction_bias",)),
    },
    gguf=Gguf(
        arch="ernie4_5-moe",
        names={
            "exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias",
            **shared_expert("mlp.shared_experts"),
        },
        keys={
            "interleave_moe_layer_step": "moe_layer_interval",
            "leading_dense_block_count": "moe_layer_start_index",
            "expert_shared_count": "moe_num_shared_experts",
        },
        also=("expert_shared_feed_forward_length",),  # which is no size of any tensor
    ),
    experts=_experts,
    tiny={
        **_DENSE.tiny,
        "moe_num_experts": 8,
        "moe_k": 2,
        "moe_intermediate_size": 64,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
    },
)
