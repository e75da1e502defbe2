"""MiniMax-M2: norms over all heads of q and of k, of which a part turns, and experts chosen by sigmoids and a bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Moe
from ..common.config_keys import Key, Only, size
from ..family import Family, Gguf, Tensors, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY, hidden_per_head
from .shared.gguf import SIGMOID_KEYS, by_sigmoids

_MOE = "model.layers.{layer}.block_sparse_moe"
_EXPERT = f"{_MOE}.experts.{{expert}}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(wide_norm=True), Moe(order="sigmoid", normalise=True, shared_gate=False)


def _rotary(raw: Mapping[str, Any], head_dim: int) -> float:
    """Released files say how many elements of a head turn, `rotary_dim`."""
    turned = raw.get("rotary_dim")
    return 1.0 if turned is None else size("rotary_dim", turned) / head_dim


FAMILY = Family(
    model_type="minimax_m2",
    architecture="MiniMaxM2ForCausalLM",
    title="MiniMax-M2",
    models="MiniMax-M2, M2.1, M2.5, without the MTP layers",
    has="norms over all heads of q and k; RoPE rotates part of a head, `rotary_dim` or `partial_rotary_factor`; "
    "`num_experts_per_tok` of `num_local_experts` MLPs for each token, chosen by sigmoids and a bias",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8),
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("max_position_embeddings", absent=196608),
        Key("num_local_experts", absent=256, also="num_experts"),
        Key("num_experts_per_tok", absent=8),
        Only("scoring_func", "sigmoid"),
        Only("use_routing_bias", True),
        Only("use_qk_norm", True),
        Only("qk_norm_type", "per_layer"),
        Only("shared_intermediate_size", 0),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        roles.ROUTER: plain(f"{_MOE}.gate.weight"),
        roles.ROUTER_CHOICE: plain(f"{_MOE}.e_score_correction_bias"),
        roles.EXPERT_GATE_UP: Tensors("alternate", (f"{_EXPERT}.w1.weight", f"{_EXPERT}.w3.weight")),
        roles.EXPERT_DOWN: plain(f"{_EXPERT}.w2.weight"),
    },
    gguf=Gguf(
        arch="minimax-m2",
        names={
            "ffn_gate_inp": "block_sparse_moe.gate",
            "exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias",
            "ffn_gate_exps": "block_sparse_moe.experts.{expert}.w1",
            "ffn_up_exps": "block_sparse_moe.experts.{expert}.w3",
            "ffn_down_exps": "block_sparse_moe.experts.{expert}.w2",
        },
        also=SIGMOID_KEYS,
        derived=by_sigmoids,
    ),
    experts=Experts.read,
    rotary=_rotary,
    rope_theta=5e6,
    tiny={
        **TINY,
        "head_dim": 64,
        "intermediate_size": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5e6,
        "rotary_dim": 32,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
)
