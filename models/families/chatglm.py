"""ChatGLM2, ChatGLM3 and GLM-4-9B as they were released: GLM under names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..common.config_keys import Key, Only, positive
from ..family import Tensors, plain
from ..weights import roles
from . import glm
from .shared.dense import TINY, all_heads

_LAYER = "transformer.encoder.layers.{layer}"
_QKV, _MLP = f"{_LAYER}.self_attention.query_key_value", f"{_LAYER}.mlp"
_SIZES = {
    "intermediate_size": "ffn_hidden_size",
    "num_hidden_layers": "num_layers",
    "num_key_value_heads": "multi_query_group_num",
    "max_position_embeddings": "seq_length",
}


def _theta(raw: Mapping[str, Any]) -> float:
    return 10000.0 * positive("rope_ratio", raw.get("rope_ratio", 1))


FAMILY = replace(
    glm.FAMILY,
    model_type="chatglm",
    architecture="ChatGLMModel",
    saved_as="ChatGLMForConditionalGeneration",
    title="ChatGLM",
    models="ChatGLM2 and 3 6B, GLM-4-9B, CodeGeeX4 9B",
    has="as GLM; `rope_ratio` multiplies theta; `add_qkv_bias` on q, k, v",
    keys=(
        *glm.FAMILY.keys,
        Key("vocab_size", also="padded_vocab_size"),
        Key("num_key_value_heads", absent=all_heads),
        Key("head_dim", absent=128),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("attention_bias", "flag", absent=False),
        Only("multi_query_attention", True),
        Only("rmsnorm", True),
        Only("post_layer_norm", True),
        Only("apply_residual_connection_post_layernorm", False),
        Only("add_bias_linear", False),
        Only("original_rope", True),
    ),
    spelled={
        **_SIZES,
        "head_dim": "kv_channels",
        "rms_norm_eps": "layernorm_epsilon",
        "attention_bias": "add_qkv_bias",
    },
    rope_theta=_theta,
    tensors={
        roles.EMBEDDING: plain("transformer.embedding.word_embeddings.weight"),
        roles.ATTENTION_NORM: plain(f"{_LAYER}.input_layernorm.weight"),
        roles.QKV: Tensors("in_pairs", (f"{_QKV}.weight",)),
        roles.QKV_BIAS: Tensors("in_pairs", (f"{_QKV}.bias",)),
        roles.ATTENTION_OUT: plain(f"{_LAYER}.self_attention.dense.weight"),
        roles.MLP_NORM: plain(f"{_LAYER}.post_attention_layernorm.weight"),
        roles.GATE_UP: Tensors("alternate", (f"{_MLP}.dense_h_to_4h.weight",)),
        roles.DOWN: plain(f"{_MLP}.dense_4h_to_h.weight"),
        roles.FINAL_NORM: plain("transformer.encoder.final_layernorm.weight"),
        roles.HEAD: plain("transformer.output_layer.weight"),
    },
    gguf=None,
    tiny={
        **{_SIZES.get(key, key): value for key, value in TINY.items() if key != "hidden_act"},
        "kv_channels": 64,
        "layernorm_epsilon": 1e-5,
        "rope_ratio": 500,
        "add_qkv_bias": True,
        "rmsnorm": True,
        "multi_query_attention": True,
    },
)
