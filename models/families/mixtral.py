"""Mixtral 8x7B and 8x22B: Mistral's attention, and in every layer a mixture of experts."""

from __future__ import annotations

from ..blocks import Attention, Block, Moe
from ..common.config_keys import Key
from ..common.config_rules import window_or_none
from ..family import Family, Gguf, Tensors, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY, all_heads

_MOE = "model.layers.{layer}.block_sparse_moe"
_EXPERT = f"{_MOE}.experts.{{expert}}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(window=config.windows[layer]), Moe(order="softmax_topk", normalise=True)


FAMILY = Family(
    model_type="mixtral",
    architecture="MixtralForCausalLM",
    title="Mixtral",
    models="Mixtral 8x7B, 8x22B",
    has="as Mistral, without a window if `sliding_window` is absent; `num_experts_per_tok` of `num_local_experts` MLPs "
    "for each token",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8, null=all_heads),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
        Key("num_local_experts", also="num_experts"),
        Key("num_experts_per_tok"),
    ),
    window=window_or_none,
    layer=_layer,
    tensors={
        **TENSORS,
        roles.ROUTER: plain(f"{_MOE}.gate.weight"),
        roles.EXPERT_GATE_UP: Tensors("alternate", (f"{_EXPERT}.w1.weight", f"{_EXPERT}.w3.weight")),
        roles.EXPERT_DOWN: plain(f"{_EXPERT}.w2.weight"),
    },
    gguf=Gguf(
        arch="llama",
        interleaved=True,
        windowed=True,
        names={
            "ffn_gate_inp": "block_sparse_moe.gate",
            "ffn_gate_exps": "block_sparse_moe.experts.{expert}.w1",
            "ffn_down_exps": "block_sparse_moe.experts.{expert}.w2",
            "ffn_up_exps": "block_sparse_moe.experts.{expert}.w3",
        },
    ),
    experts=Experts.read,
    rope_theta=1e6,
    tiny={**TINY, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2},
)
