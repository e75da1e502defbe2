"""LFM2 with experts behind the first layers, chosen by sigmoids and a bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Block, Mlp, Moe
from ..common.config_keys import Key
from ..family import HEADS_BY_LAYER, Gguf, Tensors, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from . import lfm2
from .shared.gguf import SIGMOID_KEYS, by_sigmoids

_MLP = "model.layers.{layer}.feed_forward"
_EXPERT = f"{_MLP}.experts.{{expert}}"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    if layer < flags["num_dense_layers"]:
        return lfm2.mixer(config, layer), Mlp()
    experts = Moe(
        order="sigmoid",
        choice_bias=flags["use_expert_bias"],
        normalise=flags["norm_topk_prob"],
        scale=flags["routed_scaling_factor"],
    )
    return lfm2.mixer(config, layer), experts


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    lfm2.check_layers(values)
    return lfm2.epsilon(values)


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    by_sigmoids(get, config)  # which also says whether shares are divided by their sum, as these are in any case
    return lfm2.of_gguf(get, config)


FAMILY = replace(
    lfm2.FAMILY,
    model_type="lfm2_moe",
    architecture="Lfm2MoeForCausalLM",
    title="LFM2 MoE",
    gguf=Gguf(
        arch="lfm2moe",
        names={
            **lfm2.GGUF_NAMES,
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
            "ffn_gate_inp": "feed_forward.gate",
            "exp_probs_b.bias": "feed_forward.expert_bias",
            "ffn_gate_exps": "feed_forward.experts.{expert}.w1",
            "ffn_up_exps": "feed_forward.experts.{expert}.w3",
            "ffn_down_exps": "feed_forward.experts.{expert}.w2",
        },
        keys={"shortconv.l_cache": "conv_L_cache", "leading_dense_block_count": "num_dense_layers"},
        also=(HEADS_BY_LAYER, *SIGMOID_KEYS),
        derived=_of_gguf,
    ),
    models="LFM2 8B-A1B",
    has="as LFM2, with layers by `layer_types`; `num_dense_layers` dense ones, in the others `num_experts_per_tok` of "
    "`num_experts` MLPs for each token, chosen by sigmoids and with `use_expert_bias` a bias",
    keys=(
        *lfm2.SHARED_KEYS,
        Key("intermediate_size", absent=7168),
        Key("moe_intermediate_size", absent=1792),
        Key("num_experts", absent=32),
        Key("num_experts_per_tok", absent=4),
        Key("num_dense_layers", "count", absent=2),
        Key("use_expert_bias", "flag", absent=True),
        Key("norm_topk_prob", "flag", absent=True),
        Key("routed_scaling_factor", "number", absent=1.0),
        Key("layer_types", "names"),
    ),
    layer=_layer,
    experts=Experts.read,
    folded=_folded,
    tensors={
        **lfm2.FAMILY.tensors,
        roles.ROUTER: plain(f"{_MLP}.gate.weight"),
        roles.ROUTER_CHOICE: plain(f"{_MLP}.expert_bias"),
        roles.EXPERT_GATE_UP: Tensors("alternate", (f"{_EXPERT}.w1.weight", f"{_EXPERT}.w3.weight")),
        roles.EXPERT_DOWN: plain(f"{_EXPERT}.w2.weight"),
    },
    tiny={
        **{key: value for key, value in lfm2.FAMILY.tiny.items() if not key.startswith("block_")},
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "num_dense_layers": 1,
    },
)
