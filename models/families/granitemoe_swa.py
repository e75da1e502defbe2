"""Granite with experts and the attention of Granite SWA."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Block, Moe
from ..common.config_rules import window_between_full_layers
from ..family import plain
from ..model_config import ModelConfig
from ..weights import roles
from . import granite_swa, granitemoeshared


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return granite_swa.attention(config, layer), Moe(order="topk_softmax", shared_gate=False)


_MOE = granitemoeshared.FAMILY
FAMILY = replace(
    _MOE,
    model_type="granitemoe_swa",
    architecture="GraniteMoeSWAForCausalLM",
    title="Granite MoE SWA",
    models="Granite Swash with experts",
    has="experts as Granite MoE with a shared expert, attention as Granite SWA",
    keys=(*_MOE.keys, *granite_swa.KEYS),
    window=window_between_full_layers,
    layer=_layer,
    tensors={
        **_MOE.tensors,
        **granite_swa.SINKS,
        roles.ROUTER: plain("model.layers.{layer}.block_sparse_moe.router.weight"),
    },
    local_rope=granite_swa.local_rope,
    tiny={**_MOE.tiny, **granite_swa.TINY},
)
