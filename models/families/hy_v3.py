"""Hunyuan 3: norms on the heads of q and k, and experts chosen by sigmoids and a bias beside shared ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..common.config_rules import dense_first, dense_layers
from ..family import Family, gate_up, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.deepseek_experts import EXPERT_TENSORS
from .shared.dense import KEYS, TENSORS, TINY

_MLP = "model.layers.{layer}.mlp"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    attention = Attention(qk_norm=True, qkv_bias=flags["attention_bias"], out_bias=flags["attention_bias"])
    if flags["mlp_layer_types"][layer] == "dense":
        return attention, Mlp()
    return attention, Moe(order="sigmoid", normalise=True, scale=flags["router_scaling_factor"], shared_gate=False)


def _experts(values: Mapping[str, Any]) -> Experts:
    count, chosen, inner = (values[key] for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size"))
    return Experts(count=count, chosen=chosen, inner=inner, shared=inner * values["num_shared_experts"])


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    dense_layers(values["mlp_layer_types"], values["num_hidden_layers"])
    return {}


FAMILY = Family(
    model_type="hy_v3",
    architecture="HYV3ForCausalLM",
    title="Hunyuan 3",
    models="Hy3 295B-A21B, without the MTP layer",
    has="norms on the heads of q and k; `attention_bias` on q, k, v, o; dense layers by `mlp_layer_types`, in the "
    "others `num_experts_per_tok` of `num_experts` MLPs for each token, chosen by sigmoids and a bias, and "
    "`num_shared_experts` shared ones",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8),
        Key("head_dim", absent=128),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
        Key("attention_bias", "flag", absent=False),
        Only("mlp_bias", False),
        Key("mlp_layer_types", "names", absent=dense_first, null=dense_first),
        Key("num_experts", absent=192, also="num_local_experts"),
        Key("num_experts_per_tok", absent=8),
        Key("num_shared_experts", absent=1),
        Key("moe_intermediate_size", absent=1536),
        Key("router_scaling_factor", "number", absent=2.826),
    ),
    layer=_layer,
    tensors={
        **TENSORS,
        **EXPERT_TENSORS,
        roles.ROUTER: plain(f"{_MLP}.router.gate.weight"),
        roles.ROUTER_CHOICE: plain(f"{_MLP}.expert_bias"),
        roles.SHARED_GATE_UP: gate_up(f"{_MLP}.shared_mlp"),
        roles.SHARED_DOWN: plain(f"{_MLP}.shared_mlp.down_proj.weight"),
    },
    experts=_experts,
    folded=_folded,
    rope_theta=11158840.0,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_shared_experts": 2,
        "moe_intermediate_size": 64,
    },
)
