"""Phi-3.5-MoE: norms that centre rows, biases, and experts chosen by a sparse mixer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Moe
from ..common.config_keys import Key, Only
from ..common.errors import CompileError
from ..common.rope import BY_MSCALE
from ..family import plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from . import mixtral
from .shared.layer_norm import centred, with_biases

_MIXTRAL = mixtral.FAMILY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias, rope = config.flags["attention_bias"], config.rope_scaling
    if rope["rope_type"] not in ("default", BY_MSCALE):
        raise CompileError(f"config.json: rope_type {rope['rope_type']!r} of Phi-3.5-MoE is not supported")
    threshold = 2 * config.flags["router_jitter_noise"]
    attention = Attention(qkv_bias=bias, out_bias=bias, window=config.windows[layer])
    return attention, Moe(order="sparse_mixer", threshold=threshold)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**centred(values), "head_bias": values["lm_head_bias"]}


FAMILY = replace(
    _MIXTRAL,
    model_type="phimoe",
    architecture="PhimoeForCausalLM",
    title="Phi-3.5-MoE",
    models="Phi-3.5-MoE, Phi-mini-MoE, Phi-tiny-MoE",
    has="layer norms with biases; `attention_bias` on q, k, v, o, `lm_head_bias` on the head; two of "
    "`num_local_experts` MLPs for each token, chosen by a sparse mixer (`router_jitter_noise`); LongRoPE with "
    "`short_mscale` and `long_mscale`; `sliding_window` in all layers",
    keys=(
        *_MIXTRAL.keys,
        Key("num_local_experts", absent=16),
        Only("num_experts_per_tok", 2),
        Key("attention_bias", "flag", absent=False),
        Key("lm_head_bias", "flag", absent=False),
        Key("router_jitter_noise", "number", absent=0.01),
    ),
    tensors={**with_biases(_MIXTRAL.tensors), roles.HEAD_BIAS: plain("lm_head.bias")},
    gguf=None,
    rope_types={"longrope": BY_MSCALE},
    layer=_layer,
    folded=_folded,
    experts=lambda values: Experts.read({**values, "num_experts_per_tok": 2}),
    tiny={**_MIXTRAL.tiny, "attention_bias": True, "lm_head_bias": True},
)
