"""Granite 3 with a mixture of experts, 1B-A400M and 3B-A800M: Granite's factors, and experts in every layer."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Attention, Block, Moe
from ..common.config_keys import Key
from ..family import Family, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from . import granite
from .shared.dense import KEYS, TENSORS, TINY, expert_tensors

_MOE = "model.layers.{layer}.block_sparse_moe"
_EXPERT = f"{_MOE}.experts.{{expert}}"  # as checkpoints/packed_experts.py names what a checkpoint packs


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    attention = Attention(qkv_bias=bias, out_bias=bias, scale=config.flags["attention_multiplier"])
    return attention, Moe(order="topk_softmax", shared_gate=False)


FAMILY = Family(
    model_type="granitemoe",
    architecture="GraniteMoeForCausalLM",
    title="Granite MoE",
    models="Granite 3.0 and 3.1 1B-A400M, 3B-A800M",
    has="the multipliers of Granite; `attention_bias` on q, k, v, o; `num_experts_per_tok` of `num_local_experts` MLPs "
    "for each token",
    keys=(
        *KEYS,
        Key("max_position_embeddings", absent=2048),
        Key("attention_bias", "flag", absent=False),
        *granite.FACTORS,
        Key("num_local_experts", absent=8, also="num_experts"),
        Key("num_experts_per_tok", absent=2),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        roles.ROUTER: plain(f"{_MOE}.router.layer.weight"),
        **expert_tensors(_EXPERT),
    },
    gguf=replace(
        granite.GGUF,
        arch="granitemoe",
        also=(),
        derived=lambda get, config: {},
        names={
            "ffn_gate_inp": "block_sparse_moe.router.layer",
            "ffn_gate_exps": "block_sparse_moe.experts.{expert}.gate_proj",
            "ffn_up_exps": "block_sparse_moe.experts.{expert}.up_proj",
            "ffn_down_exps": "block_sparse_moe.experts.{expert}.down_proj",
        },
    ),
    experts=Experts.read,
    folded=granite.folded,
    packed_experts="rows",
    tiny={
        **TINY,
        "intermediate_size": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        **granite.TINY_FACTORS,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
    },
)
