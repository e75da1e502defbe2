"""HyperCLOVA X SEED Think: Llama with factors, and norms behind attention and MLP as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import plain
from ..model_config import ModelConfig
from ..weights import roles
from . import granite
from .shared.dense import TENSORS

_LAYER = "model.layers.{layer}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    norm, factor = flags["use_post_norm"], flags["residual_multiplier"]
    attention = Attention(scale=flags["attention_multiplier"], out_norm=norm, out_scale=factor)
    return attention, Mlp(out_norm=norm, out_scale=factor)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"embedding_scale": values["embedding_multiplier"], "logit_scale": values["logits_scaling"]}


def _usual_scale(values: Mapping[str, Any]) -> float:
    return float(values["head_dim"] ** -0.5)


_GRANITE = granite.FAMILY
FAMILY = replace(
    _GRANITE,
    model_type="hyperclovax",
    architecture="HyperCLOVAXForCausalLM",
    title="HyperCLOVA X",
    models="HyperCLOVA X SEED Think 14B",
    has="`use_post_norm`: norms behind attention and MLP too; `embedding_multiplier`, `residual_multiplier`, "
    "`attention_multiplier`, and `logits_scaling`, which multiplies",
    keys=(
        *_GRANITE.keys,
        Key("attention_multiplier", "number", absent=_usual_scale, null=_usual_scale),
        Key("use_post_norm", "flag", absent=True),
        Only("attention_bias", False),
        Only("mlp_bias", False),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        roles.ATTENTION_OUT_NORM: plain(f"{_LAYER}.post_norm1.weight"),
        roles.MLP_OUT_NORM: plain(f"{_LAYER}.post_norm2.weight"),
    },
    folded=_folded,
    gguf=None,
    tiny={**_GRANITE.tiny, "logits_scaling": 0.125},
)
