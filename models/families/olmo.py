"""OLMo 1: Llama's layers behind norms without weights, which centre rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.errors import CompileError
from ..family import Family, Gguf
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY

_NORMS = (roles.ATTENTION_NORM, roles.MLP_NORM, roles.FINAL_NORM)
_EPSILON = 1e-5


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    return Attention(qkv_bias=bias, out_bias=bias, clip=config.flags["clip_qkv"]), Mlp()


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"centred": True, "norm_weight": False, "rms_norm_eps": _EPSILON}


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    if (epsilon := config["norm_eps"]) != _EPSILON:
        raise CompileError(f"attention.layer_norm_epsilon={epsilon!r:.40} is not supported, expected {_EPSILON}")
    return {"clip_qkv": get("attention.clamp_kqv") or None, "rms_norm_eps": epsilon}


FAMILY = Family(
    model_type="olmo",
    architecture="OlmoForCausalLM",
    title="OLMo",
    models="OLMo 1B, 7B and 7B of April and July 2024",
    has="layer norms without weights; `clip_qkv` bounds q, k and v; `attention_bias` on q, k, v, o",
    keys=(
        *KEYS,
        Key("max_position_embeddings", absent=2048),
        Key("attention_bias", "flag", absent=False),
        Key("clip_qkv", "optional", absent=None, null=None),
    ),
    layer=_layer,
    tensors={role: source for role, source in TENSORS.items() if role not in _NORMS},
    folded=_folded,
    gguf=Gguf(
        arch="olmo",
        interleaved=True,
        keys={"attention.layer_norm_epsilon": "norm_eps"},
        also=("attention.clamp_kqv",),
        derived=_of_gguf,
    ),
    tiny={**TINY, "rope_theta": 10000.0, "clip_qkv": 0.5},
)
