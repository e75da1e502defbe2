"""Granite 4 without Mamba layers, 350M to Micro: Granite with an MLP that files call shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..common.errors import CompileError
from ..model_config import ModelConfig
from ..weights import roles
from . import granite, granitemoeshared
from .shared.dense import KEYS, TENSORS

_SHARED = granitemoeshared.FAMILY.tensors


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    bias, rotated = flags["attention_bias"], flags["position_embedding_type"] == "rope"
    return Attention(qkv_bias=bias, out_bias=bias, scale=flags["attention_multiplier"], rotated=rotated), Mlp()


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    types, layers, positions = values["layer_types"], values["num_hidden_layers"], values["position_embedding_type"]
    if len(types) != layers or not {"attention", "full_attention"}.issuperset(types):
        raise CompileError(
            f"config.json: layer_types must name {layers} layers attention, got {types!r:.80}; Mamba is not supported"
        )
    if positions not in ("rope", "nope"):
        raise CompileError(f"config.json: position_embedding_type={positions!r:.40}, expected rope or nope")
    return {**granite.folded(values), "intermediate_size": values["shared_intermediate_size"]}


FAMILY = replace(
    granite.FAMILY,
    model_type="granitemoehybrid",
    architecture="GraniteMoeHybridForCausalLM",
    title="Granite 4 without Mamba",
    models="Granite 4.0 350M, 1B, Micro",
    has="the multipliers of Granite; `shared_intermediate_size` of the MLP; no rotation unless "
    "`position_embedding_type` is rope; `attention_bias` on q, k, v, o",
    keys=(
        *KEYS,
        Key("intermediate_size", absent=11008),
        Key("max_position_embeddings", absent=2048),
        Key("attention_bias", "flag", absent=False),
        *granite.FACTORS,
        Key("shared_intermediate_size", absent=1024),
        Key("position_embedding_type", "choice", absent="nope", null="nope"),
        Key("layer_types", "names"),
        Only("num_local_experts", 0),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        roles.GATE_UP: _SHARED[roles.SHARED_GATE_UP],
        roles.DOWN: _SHARED[roles.SHARED_DOWN],
    },
    folded=_folded,
    gguf=None,
    tiny={
        **granite.FAMILY.tiny,
        "shared_intermediate_size": 320,
        "position_embedding_type": "rope",
        "layer_types": ["attention"] * 2,
        "num_local_experts": 0,
        "mamba_n_heads": 8,  # transformers checks that it divides twice the hidden size
    },
)
