"""Command-R and Aya 23: attention and the MLP beside each other, behind one norm, and logits times a factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf, Tensors
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, QKV_IN_PAIRS, TENSORS, TINY


def layer_of(config: ModelConfig, layer: int, *, rotated: bool = True) -> tuple[Block, ...]:
    """The blocks of a layer."""
    bias = config.flags["attention_bias"]
    attention = Attention(
        qkv_bias=bias,
        out_bias=bias,
        window=config.windows[layer],
        rotated=rotated,
        head_norms=config.flags.get("use_qk_norm", False),
    )
    return attention, Mlp(beside=True, in_norm=False)


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"centred": True, "logit_scale": values["logit_scale"]}


FAMILY = Family(
    model_type="cohere",
    architecture="CohereForCausalLM",
    title="Command-R",
    models="Command-R and R+, Aya 23, Aya Expanse",
    has="layer norms without biases; the MLP beside attention, behind the same norm; RoPE rotates pairs of neighbours; "
    "`logit_scale`; `attention_bias` on q, k, v, o; with `use_qk_norm` a layer norm for each head of q and k",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=8192),
        Key("tie_word_embeddings", "flag", absent=True),
        Key("attention_bias", "flag", absent=False),
        Key("logit_scale", "number", absent=0.0625),
        Key("use_qk_norm", "flag", absent=False),
    ),
    spelled={"rms_norm_eps": "layer_norm_eps"},
    layer=layer_of,
    tensors={
        **TENSORS,
        **QKV_IN_PAIRS,
        roles.QKV_FACTORS: Tensors("table", tuple(TENSORS[norm].names[0] for norm in (roles.Q_NORM, roles.K_NORM))),
    },
    folded=_folded,
    gguf=Gguf(
        arch="command-r",
        keys={"attention.layer_norm_epsilon": "layer_norm_eps", "logit_scale": "logit_scale"},
    ),
    rope_theta=500000.0,
    tiny={
        **TINY,
        "layer_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "logit_scale": 0.0625,
        "use_qk_norm": True,
    },
    other_values=True,
)
