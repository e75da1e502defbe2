"""Granite 3 dense: Llama with four factors, three of which go into numbers that a package has anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import BIASES, KEYS, TENSORS, TINY

_NAMES = ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")
FACTORS = tuple(Key(name, "number", absent=1.0) for name in _NAMES)
TINY_FACTORS: Mapping[str, float] = dict(zip(_NAMES, (12.0, 0.22, 0.0625, 6.0), strict=True))


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    bias = flags["attention_bias"]
    attention = Attention(qkv_bias=bias, out_bias=bias, scale=flags["attention_multiplier"])
    return attention, Mlp(bias=flags["mlp_bias"])


def folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Blocks add their results without `residual_multiplier` to hidden states that are divided by it instead: norms,
    which alone read these, give the same once their epsilon is divided by its square."""
    residual = values["residual_multiplier"]
    return {
        "embedding_scale": values["embedding_multiplier"] / residual,
        "rms_norm_eps": values["rms_norm_eps"] / residual**2,
        "logit_scale": 1 / values["logits_scaling"],
    }


_SHARED = "expert_shared_feed_forward_length"


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Files of Granite 4 without experts and state-space layers have the size of the MLP as that of a shared one."""
    return {"intermediate_size": get(_SHARED) or config["intermediate_size"]}


GGUF = Gguf(
    arch="granite",
    interleaved=True,
    keys={
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "attention.scale": "attention_multiplier",
        "logit_scale": "logits_scaling",
    },
    also=(_SHARED,),
    derived=_of_gguf,
)
FAMILY = Family(
    model_type="granite",
    architecture="GraniteForCausalLM",
    title="Granite",
    models="Granite 3.0 to 3.3 dense, 2B and 8B",
    has="`embedding_multiplier`, `residual_multiplier`, `attention_multiplier` and `logits_scaling`; `attention_bias` "
    "and `mlp_bias` as Llama",
    keys=(*KEYS, Key("max_position_embeddings", absent=2048), *BIASES, *FACTORS),
    layer=_layer,
    tensors=TENSORS,
    folded=folded,
    gguf=GGUF,
    tiny={**TINY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, **TINY_FACTORS},
)
