"""Hunyuan with a mixture of experts, A13B: attention as in Hunyuan dense, and a shared expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Block, Moe
from ..common.config_keys import Key
from ..family import plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from . import hunyuan_v1_dense
from .shared.dense import expert_tensors

_MLP = "model.layers.{layer}.mlp"
_EXPERT, _SHARED = f"{_MLP}.experts.{{expert}}", f"{_MLP}.shared_mlp"
_DENSE = hunyuan_v1_dense.FAMILY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    attention = hunyuan_v1_dense.attention(config)
    return attention, Moe(order="softmax_topk", normalise=True, shared_gate=False)


def _experts(values: Mapping[str, Any]) -> Experts:
    inner = values["intermediate_size"]
    return Experts(count=values["num_experts"], chosen=values["moe_topk"], inner=inner, shared=inner)


FAMILY = replace(
    _DENSE,
    model_type="hunyuan_v1_moe",
    architecture="HunYuanMoEV1ForCausalLM",
    title="Hunyuan MoE",
    gguf=None,
    models="Hunyuan-A13B",
    has="as Hunyuan dense, with `moe_topk` of `num_experts` MLPs for each token, and a shared one",
    keys=(
        *_DENSE.keys,
        Key("num_experts", "same_size", absent=1, also="num_local_experts"),
        Key("moe_topk", "same_size", absent=1, also="num_experts_per_tok"),
    ),
    layer=_layer,
    tensors={
        **_DENSE.tensors,
        roles.ROUTER: plain(f"{_MLP}.gate.wg.weight"),
        **expert_tensors(_EXPERT, _SHARED),
    },
    experts=_experts,
    tiny={**_DENSE.tiny, "intermediate_size": 128, "num_experts": 8, "moe_topk": [2, 2]},
)
