"""Gemma 2, 2B to 27B: norms on both sides of each block, a window in every other layer, scores and logits capped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..common.config_rules import Windows, window_of_every_other_layer
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.gemma import KEYS, TENSORS, TINY, folded, of_gguf, with_norms_less_one
from .shared.gguf import GGUF_NORMS_AROUND

_LAYERS_OF_27B, _WINDOW = 46, 4096


def windows(raw: Mapping[str, Any], layers: int) -> Windows:
    """In layers that `layer_types` names, or in the first and every other one."""
    return window_of_every_other_layer({"sliding_window": _WINDOW, **raw}, layers)


def attention(config: ModelConfig, layer: int, *, out_norm: bool) -> Attention:
    """That of a layer."""
    flags = config.flags
    return Attention(
        qkv_bias=flags["attention_bias"],
        out_bias=flags["attention_bias"],
        window=config.windows[layer],
        scale=flags["query_pre_attn_scalar"] ** -0.5,
        softcap=flags["attn_logit_softcapping"],
        out_norm=out_norm,
    )


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return attention(config, layer, out_norm=True), Mlp(gelu="gelu_tanh", out_norm=True)


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Early files say neither window nor caps; llama.cpp knows them, and has no layers without."""
    known = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    said = {key: value for key in known if (value := get(key)) is not None}
    return {
        **of_gguf(get, config, _LAYERS_OF_27B),
        **known,
        **said,
        "sliding_window": config["sliding_window"] or _WINDOW,
    }


FAMILY = Family(
    model_type="gemma2",
    architecture="Gemma2ForCausalLM",
    title="Gemma 2",
    models="Gemma 2 2B, 9B, 27B",
    has="norms before and behind attention and MLP, stored less 1; GELU for SiLU; `sliding_window` in every other "
    "layer, or by `layer_types`; `query_pre_attn_scalar`; `attn_logit_softcapping`, `final_logit_softcapping`",
    keys=(
        *KEYS,
        Key("vocab_size", absent=256000),
        Key("max_position_embeddings", absent=8192),
        Key("attention_bias", "flag", absent=False),
        Key("query_pre_attn_scalar", "number", absent=256.0),
        Key("final_logit_softcapping", "optional", absent=30.0),
        Key("attn_logit_softcapping", "optional", absent=50.0),
        Only("use_bidirectional_attention", None, also=(False,)),
    ),
    window=windows,
    layer=_layer,
    tensors=with_norms_less_one(TENSORS),
    gguf=Gguf(
        arch="gemma2",
        windowed=True,
        names=GGUF_NORMS_AROUND,
        also=("attn_logit_softcapping", "final_logit_softcapping"),
        derived=_of_gguf,
    ),
    folded=folded,
    tiny={**TINY, "query_pre_attn_scalar": 48, "sliding_window": 24, "attn_logit_softcapping": 2.0},
    other_values=True,
)
