"""VaultGemma 1B: as Gemma 2, without norms behind attention and MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Block, Mlp
from ..model_config import ModelConfig
from . import gemma2


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return gemma2.attention(config, layer, out_norm=False), Mlp(gelu="gelu_tanh")


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"embedding_scale": values["hidden_size"] ** 0.5, "logit_cap": values["final_logit_softcapping"]}


FAMILY = replace(
    gemma2.FAMILY,
    model_type="vaultgemma",
    architecture="VaultGemmaForCausalLM",
    title="VaultGemma",
    gguf=None,
    models="VaultGemma 1B",
    has="as Gemma 2, without norms behind attention and MLP",
    layer=_layer,
    folded=_folded,
    other_values=False,
)
