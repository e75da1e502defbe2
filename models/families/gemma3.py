"""Gemma 3, its language model: norms on both sides of each block, five layers with a window for each without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..common.config_rules import read_local_rope
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.gemma import KEYS, TENSORS, TINY, folded, of_gguf, window_by_pattern, with_norms_less_one
from .shared.gguf import GGUF_NORMS_AROUND, LOCAL_THETA

_LAYERS_OF_27B = 62


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    window = config.windows[layer]
    attention = Attention(
        qk_norm=True,
        window=window,
        local_rope=window is not None,
        scale=config.flags["query_pre_attn_scalar"] ** -0.5,
        out_norm=True,
    )
    return attention, Mlp(gelu="gelu_tanh", out_norm=True)


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**of_gguf(get, config, _LAYERS_OF_27B), "rope_local_base_freq": get(LOCAL_THETA) or 10000.0}


FAMILY = Family(
    model_type="gemma3",
    architecture="Gemma3ForConditionalGeneration",
    text_architecture="Gemma3ForCausalLM",
    title="Gemma 3",
    models="Gemma 3 270M to 27B, the language model",
    has="norms before and behind attention and MLP, stored less 1; norms on the heads of q and k; GELU for SiLU; "
    "`sliding_window` with a RoPE of its own in five of six layers, or by `sliding_window_pattern` or `layer_types`; "
    "`query_pre_attn_scalar`; `final_logit_softcapping`",
    keys=(*KEYS, Key("query_pre_attn_scalar", "number", absent=256.0), Only("attn_logit_softcapping", None)),
    window=window_by_pattern,
    layer=_layer,
    tensors=with_norms_less_one(TENSORS),
    gguf=Gguf(
        arch="gemma3",
        windowed=True,
        names=GGUF_NORMS_AROUND,
        also=("final_logit_softcapping", LOCAL_THETA),
        derived=_of_gguf,
    ),
    folded=folded,
    rope_theta=1e6,
    local_rope=read_local_rope,
    nested="text_config",
    tiny={
        **TINY,
        "query_pre_attn_scalar": 48,
        "sliding_window": 24,
        "sliding_window_pattern": 2,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    other_values=True,
)
