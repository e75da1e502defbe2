"""Ling and Ring 2.0: norms on the heads of q and k, of which a part turns, and experts as in GLM-4 MoE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..family import Family, Gguf, Tensors, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.deepseek_experts import EXPERT_TENSORS, experts_of, groups_of
from .shared.dense import KEYS, TENSORS, TINY
from .shared.gguf import SIGMOID_KEYS, by_sigmoids, shared_expert

_ATTENTION = "model.layers.{layer}.attention"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = Attention(qk_norm=flags["use_qk_norm"], qkv_bias=flags["use_qkv_bias"], out_bias=flags["use_bias"])
    if layer < flags["first_k_dense_replace"]:
        return attention, Mlp()
    scale = flags["routed_scaling_factor"]
    return attention, Moe(order="sigmoid", normalise=True, scale=scale, shared_gate=False, groups=groups_of(flags))


def _experts(values: Mapping[str, Any]) -> Experts:
    return experts_of(
        {**values, "n_routed_experts": values["num_experts"], "n_shared_experts": values["num_shared_experts"]}
    )


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    biases = {"use_qkv_bias": config["qkv_bias"], "use_bias": config["attention_out_bias"]}
    return {**by_sigmoids(get, config), **biases}


FAMILY = Family(
    model_type="bailing_moe_v2",
    architecture="BailingMoeV2ForCausalLM",
    title="Ling 2.0",
    models="Ling and Ring 2.0 mini, flash, 1T, without the MTP layers",
    has="norms on the heads of q and k (`use_qk_norm`), which turn in part, `partial_rotary_factor`; `use_qkv_bias` on "
    "q, k, v, `use_bias` on o; `first_k_dense_replace` dense layers, in the others experts as GLM-4 MoE, "
    "`num_experts_per_tok` of `num_experts`, and `num_shared_experts` shared ones",
    keys=(
        *KEYS,
        Key("head_dim", absent=128),
        Key("max_position_embeddings", absent=32768),
        Key("use_qkv_bias", "flag", absent=False),
        Key("use_bias", "flag", absent=False),
        Key("use_qk_norm", "flag", absent=True),
        Key("num_experts", absent=256),
        Key("num_experts_per_tok", absent=8),
        Key("num_shared_experts", absent=1),
        Key("moe_intermediate_size", absent=512),
        Key("first_k_dense_replace", "count", absent=1),
        Key("routed_scaling_factor", "number", absent=1.0),
        Key("n_group", absent=8),
        Key("topk_group", absent=4),
        Only("norm_topk_prob", True),
        Only("score_function", "sigmoid"),
        Only("moe_router_enable_expert_bias", True),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        **EXPERT_TENSORS,
        roles.EMBEDDING: plain("model.word_embeddings.weight"),
        roles.QKV: Tensors("stack", (f"{_ATTENTION}.query_key_value.weight",)),
        roles.QKV_BIAS: plain(f"{_ATTENTION}.query_key_value.bias"),
        roles.Q_NORM: plain(f"{_ATTENTION}.query_layernorm.weight"),
        roles.K_NORM: plain(f"{_ATTENTION}.key_layernorm.weight"),
        roles.ATTENTION_OUT: plain(f"{_ATTENTION}.dense.weight"),
        roles.ATTENTION_OUT_BIAS: plain(f"{_ATTENTION}.dense.bias"),
        roles.ROUTER_CHOICE: plain("model.layers.{layer}.mlp.gate.expert_bias"),
    },
    gguf=Gguf(
        arch="bailingmoe2",
        names={
            "token_embd": "model.word_embeddings",
            "attn_qkv": "attention.query_key_value",
            "attn_q_norm": "attention.query_layernorm",
            "attn_k_norm": "attention.key_layernorm",
            "attn_output": "attention.dense",
            "exp_probs_b.bias": "mlp.gate.expert_bias",
            **shared_expert("mlp.shared_experts"),
        },
        keys={
            "expert_shared_count": "num_shared_experts",
            "leading_dense_block_count": "first_k_dense_replace",
            "expert_weights_scale": "routed_scaling_factor",
            "expert_group_count": "n_group",
            "expert_group_used_count": "topk_group",
        },
        also=(*SIGMOID_KEYS, "expert_shared_feed_forward_length"),
        derived=_of_gguf,
    ),
    experts=_experts,
    rotary=0.5,
    rope_theta=600000.0,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 600000.0,
        "use_qkv_bias": True,
        "partial_rotary_factor": 0.5,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "routed_scaling_factor": 2.5,
        "n_group": 4,
        "topk_group": 2,
    },
)
