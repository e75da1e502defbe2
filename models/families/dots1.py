"""dots.llm1: norms on the heads of q and k, and experts chosen by sigmoids and a bias, beside shared ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block
from ..common.config_keys import Key
from ..common.config_rules import Windows, max_window_layers, sliding_layers, windows_in
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.deepseek_experts import EXPERT_TENSORS, GGUF_KEYS, experts_of, mlp_or_experts
from .shared.dense import KEYS, TENSORS, TINY, all_heads
from .shared.gguf import SIGMOID_KEYS, by_sigmoids, shared_expert


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    """In layers that `layer_types` names, or else from `max_window_layers` on."""
    types, window = raw.get("layer_types"), raw.get("sliding_window", 4096)
    if types is not None:
        return windows_in(sliding_layers(types, layers), window)
    first = max_window_layers({"max_window_layers": 62, **raw})
    return windows_in([window is not None and layer >= first for layer in range(layers)], window)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    attention = Attention(qk_norm=True, qkv_bias=bias, out_bias=bias, window=config.windows[layer])
    return attention, mlp_or_experts(config, layer < config.flags["first_k_dense_replace"])


FAMILY = Family(
    model_type="dots1",
    architecture="Dots1ForCausalLM",
    title="dots.llm1",
    models="dots.llm1",
    has="norms on the heads of q and k; `attention_bias` on q, k, v, o; experts as GLM-4 MoE; `sliding_window` in "
    "layers that `layer_types` names, or from `max_window_layers` on",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=32, null=all_heads),
        Key("max_position_embeddings", absent=2048),
        Key("attention_bias", "flag", absent=False),
        Key("n_routed_experts", also="num_local_experts"),
        Key("n_shared_experts"),
        Key("num_experts_per_tok"),
        Key("moe_intermediate_size", absent=1408),
        Key("routed_scaling_factor", "number", absent=1.0),
        Key("norm_topk_prob", "flag", absent=False),
        Key("first_k_dense_replace", "count", absent=0),
        Key("n_group", absent=1),
        Key("topk_group", absent=1),
    ),
    window=_windows,
    layer=_layer,
    tensors={**TENSORS, **EXPERT_TENSORS},
    gguf=Gguf(
        arch="dots1",
        names={"exp_probs_b.bias": "mlp.gate.e_score_correction_bias", **shared_expert("mlp.shared_experts")},
        keys=GGUF_KEYS,
        also=SIGMOID_KEYS,
        derived=by_sigmoids,
    ),
    experts=experts_of,
    tiny={
        **TINY,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "first_k_dense_replace": 1,
    },
)
