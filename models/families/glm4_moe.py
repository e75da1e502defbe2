"""GLM-4.5 to 4.7, with experts behind the first layers: chosen by sigmoids and a bias, beside a shared one."""

from __future__ import annotations

from ..blocks import Attention, Block
from ..common.config_keys import Key
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.deepseek_experts import EXPERT_TENSORS, EXPERT_TINY, GGUF_KEYS, expert_keys, experts_of, mlp_or_experts
from .shared.dense import KEYS, TENSORS, TINY
from .shared.gguf import SIGMOID_KEYS, by_sigmoids, shared_expert


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = Attention(qk_norm=flags["use_qk_norm"], qkv_bias=flags["attention_bias"])
    return attention, mlp_or_experts(config, layer < flags["first_k_dense_replace"])


FAMILY = Family(
    model_type="glm4_moe",
    architecture="Glm4MoeForCausalLM",
    title="GLM-4 MoE",
    models="GLM-4.5, GLM-4.5-Air, GLM-4.6, GLM-4.7, without the MTP layer",
    has="RoPE rotates part of a head, `partial_rotary_factor`; `use_qk_norm`; `attention_bias` on q, k, v; "
    "`first_k_dense_replace` dense layers, in the others `num_experts_per_tok` of `n_routed_experts` MLPs for each "
    "token, chosen by sigmoids and a bias, and `n_shared_experts` shared ones",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
        Key("attention_bias", "flag", absent=False),
        Key("use_qk_norm", "flag", absent=False),
        *expert_keys(),
        Key("first_k_dense_replace", "count", absent=1),
    ),
    layer=_layer,
    tensors={**TENSORS, **EXPERT_TENSORS},
    gguf=Gguf(
        arch="glm4moe",
        names={
            "post_attention_norm": "post_attention_layernorm",
            "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
            **shared_expert("mlp.shared_experts"),
        },
        keys=GGUF_KEYS,
        also=SIGMOID_KEYS,
        derived=by_sigmoids,
    ),
    experts=experts_of,
    rotary=0.5,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
        "use_qk_norm": True,
        **EXPERT_TINY,
    },
)
