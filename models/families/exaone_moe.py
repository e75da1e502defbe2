"""K-EXAONE: windows and rotation as in EXAONE 4.0, norms before attention and MLP, and experts as in GLM-4 MoE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block
from ..common.config_keys import Key
from ..common.config_rules import dense_layers, window_of_most_layers
from ..family import Family, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.deepseek_experts import EXPERT_TENSORS, experts_of, mlp_or_experts
from .shared.dense import KEYS, TENSORS, TINY


def _mlps(values: Mapping[str, Any]) -> tuple[str, ...]:
    first, layers = values["first_k_dense_replace"], values["num_hidden_layers"]
    return tuple("dense" if layer < first else "sparse" for layer in range(layers))


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    dense_layers(values["mlp_layer_types"], values["num_hidden_layers"])
    return {}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    window = config.windows[layer]
    rotated = config.flags["sliding_window"] is None or window is not None
    attention = Attention(qk_norm=True, window=window, rotated=rotated)
    return attention, mlp_or_experts(config, config.flags["mlp_layer_types"][layer] == "dense")


def _experts(values: Mapping[str, Any]) -> Experts:
    return experts_of(
        {**values, "n_routed_experts": values["num_experts"], "n_shared_experts": values["num_shared_experts"]}
    )


FAMILY = Family(
    model_type="exaone_moe",
    architecture="ExaoneMoeForCausalLM",
    title="EXAONE MoE",
    models="K-EXAONE 236B-A23B, without the MTP layer",
    has="norms on the heads of q and k; windows and rotation as EXAONE 4.0; dense layers by `mlp_layer_types` or "
    "`first_k_dense_replace`, in the others experts as GLM-4 MoE, `num_experts_per_tok` of `num_experts`, and "
    "`num_shared_experts` shared ones",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=32),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("sliding_window", "optional", absent=4096),
        Key("first_k_dense_replace", "count", absent=1),
        Key("mlp_layer_types", "names", absent=_mlps, null=_mlps),
        Key("num_experts", absent=64, also="num_local_experts"),
        Key("num_experts_per_tok", absent=8),
        Key("num_shared_experts", absent=1),
        Key("moe_intermediate_size", absent=1024),
        Key("routed_scaling_factor", "number", absent=2.5),
        Key("norm_topk_prob", "flag", absent=True),
        Key("n_group", absent=1),
        Key("topk_group", absent=1),
    ),
    window=window_of_most_layers,
    layer=_layer,
    tensors={
        **TENSORS,
        **EXPERT_TENSORS,
        roles.ROUTER_CHOICE: plain("model.layers.{layer}.mlp.e_score_correction_bias"),
    },
    experts=_experts,
    folded=_folded,
    other_values=True,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "sliding_window": 10,
        "sliding_window_pattern": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    },
)
