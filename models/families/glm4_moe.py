"""GLM-4.5 to 4.7, with experts behind the first layers: chosen by sigmoids and a bias, beside a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..common.config_rules import no_window
from ..family import Family, Gguf, Tensors, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.dense import CONTRACT, KEYS, TENSORS, TINY
from .shared.gguf import SIGMOID_KEYS, by_sigmoids, shared_expert

_MLP = "model.layers.{layer}.mlp"
_EXPERT, _SHARED = f"{_MLP}.experts.{{expert}}", f"{_MLP}.shared_experts"


def mlp_or_experts(config: ModelConfig, dense: bool) -> Mlp | Moe:
    """What a layer has behind attention."""
    flags = config.flags
    if dense:
        return Mlp()
    scale = flags["routed_scaling_factor"]
    return Moe(order="sigmoid", normalise=flags["norm_topk_prob"], scale=scale, shared_gate=False)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = Attention(qk_norm=flags["use_qk_norm"], qkv_bias=flags["attention_bias"])
    return attention, mlp_or_experts(config, layer < flags["first_k_dense_replace"])


def experts(values: Mapping[str, Any]) -> Experts:
    """Sizes of the experts; the shared ones are one that is as large as all of them."""
    inner = values["moe_intermediate_size"]
    return Experts(
        count=values["n_routed_experts"],
        chosen=values["num_experts_per_tok"],
        inner=inner,
        shared=inner * values["n_shared_experts"],
    )


def _gate_up(of: str) -> Tensors:
    return Tensors("alternate", (f"{of}.gate_proj.weight", f"{of}.up_proj.weight"))


GGUF_KEYS = {
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_weights_scale": "routed_scaling_factor",
}
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
        Key("n_routed_experts", absent=128, also="num_local_experts"),
        Key("n_shared_experts", absent=1),
        Key("num_experts_per_tok", absent=8),
        Key("moe_intermediate_size", absent=1408),
        Key("routed_scaling_factor", "number", absent=1.0),
        Key("norm_topk_prob", "flag", absent=True),
        Key("first_k_dense_replace", "count", absent=1),
        Only("n_group", 1),
        Only("topk_group", 1),
    ),
    window=no_window,
    layer=_layer,
    tensors={
        **TENSORS,
        roles.ROUTER: plain(f"{_MLP}.gate.weight"),
        roles.ROUTER_CHOICE: plain(f"{_MLP}.gate.e_score_correction_bias"),
        roles.EXPERT_GATE_UP: _gate_up(_EXPERT),
        roles.EXPERT_DOWN: plain(f"{_EXPERT}.down_proj.weight"),
        roles.SHARED_GATE_UP: _gate_up(_SHARED),
        roles.SHARED_DOWN: plain(f"{_SHARED}.down_proj.weight"),
    },
    contract=CONTRACT,
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
    experts=experts,
    rotary=0.5,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
        "use_qk_norm": True,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "routed_scaling_factor": 2.5,
        "first_k_dense_replace": 1,
    },
)
