"""IQuest-Coder: Llama's layers, which transformers loads by Llama's class."""

from __future__ import annotations

from dataclasses import replace

from ..common.config_keys import Key, Only
from . import llama

_LLAMA = llama.FAMILY
FAMILY = replace(
    _LLAMA,
    model_type="iquestcoder",
    architecture="IQuestCoderForCausalLM",
    title="IQuest-Coder",
    models="IQuest-Coder-V1 7B, 14B, 40B",
    has="as Llama",
    keys=(
        *_LLAMA.keys,
        Key("head_dim", absent=128),
        Key("num_key_value_heads", absent=8),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
        Only("clip_qkv", None),
        Only("use_sliding_window", False),
    ),
    saved_as="LlamaForCausalLM",
    gguf=None,
    tiny={**_LLAMA.tiny, "head_dim": 64, "attention_bias": False, "mlp_bias": False},
)
