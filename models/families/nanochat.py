"""nanochat: norms without weights, heads that turn back, an MLP without a gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..family import Family, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY

_MLP = "model.layers.{layer}.mlp"
_NORMS = (roles.ATTENTION_NORM, roles.MLP_NORM, roles.FINAL_NORM, roles.Q_NORM, roles.K_NORM)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    attention = Attention(qk_norm=True, late_norm=True, unit_heads=True, qkv_bias=bias, out_bias=bias)
    return attention, Mlp(alone="relu2")


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    cap = values["final_logit_softcapping"]
    return {"norm_weight": False, "input_norm": True, "turns_back": True, "logit_cap": cap}


FAMILY = Family(
    model_type="nanochat",
    architecture="NanoChatForCausalLM",
    title="nanochat",
    models="nanochat d20, d32, d34, in the form of transformers",
    has="norms without weights, also of the embedding, and of the heads of q and k behind their rotation, which turns "
    "the other way; no gate in the MLP, squared ReLU for SiLU; `attention_bias`; `final_logit_softcapping`",
    keys=(
        *KEYS,
        Key("max_position_embeddings", absent=2048),
        Key("final_logit_softcapping", "optional", absent=15.0),
        Key("attention_bias", "flag", absent=False),
        Only("hidden_act", "relu2"),
    ),
    layer=_layer,
    tensors={
        **{role: source for role, source in TENSORS.items() if role not in _NORMS},
        roles.UP: plain(f"{_MLP}.fc1.weight"),
        roles.DOWN: plain(f"{_MLP}.fc2.weight"),
    },
    folded=_folded,
    tiny={**TINY, "hidden_act": "relu2", "rope_theta": 10000.0, "final_logit_softcapping": 15.0},
    other_values=True,
)
