"""Qwen3.5 and 3.6 with a mixture of experts, 35B-A3B: mixers as in Qwen3.5, and experts in every layer, one shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Block, Moe
from ..common.config_keys import Key
from ..family import Gguf, gate_up, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from . import qwen3_5
from .shared.dense import expert_tensors
from .shared.gguf import RECURRENT, shared_expert

_MLP = "model.layers.{layer}.mlp"
_EXPERT, _SHARED = f"{_MLP}.experts.{{expert}}", f"{_MLP}.shared_expert"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return qwen3_5.mixer(config, layer), Moe(order="softmax_topk", normalise=True)


def _inner(values: Mapping[str, Any]) -> int:
    """No layer is dense."""
    return int(values["hidden_size"])


SHARED_TENSORS = {
    roles.SHARED_GATE_UP: gate_up(_SHARED),
    roles.SHARED_DOWN: plain(f"{_SHARED}.down_proj.weight"),
    roles.SHARED_GATE: plain(f"{_MLP}.shared_expert_gate.weight"),
}
_DENSE = qwen3_5.FAMILY
FAMILY = replace(
    _DENSE,
    model_type="qwen3_5_moe",
    architecture="Qwen3_5MoeForConditionalGeneration",
    text_architecture="Qwen3_5MoeForCausalLM",
    title="Qwen3.5 MoE",
    models="Qwen3.5 and 3.6 35B-A3B, with its MTP layer or without",
    has="as Qwen3.5, with `num_experts_per_tok` of `num_experts` MLPs for each token, and a shared one with a gate",
    keys=(
        *_DENSE.keys,
        Key("intermediate_size", absent=_inner),
        Key("num_experts", absent=256, also="num_local_experts"),
        Key("num_experts_per_tok", absent=8),
        Key("moe_intermediate_size", absent=512),
        Key("shared_expert_intermediate_size", absent=512),
    ),
    layer=_layer,
    experts=Experts.read,
    gguf=Gguf(
        arch="qwen35moe",
        tiled_values=True,
        names={
            **qwen3_5.GGUF_NAMES,
            "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
            **shared_expert("mlp.shared_expert"),
        },
        keys={**qwen3_5.GGUF_KEYS, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
        also=(RECURRENT,),
        derived=qwen3_5.value_sizes,
    ),
    packed_experts="rows",
    tensors={
        **_DENSE.tensors,
        roles.ROUTER: plain(f"{_MLP}.gate.weight"),
        **expert_tensors(_EXPERT),
        **SHARED_TENSORS,
    },
    tiny={
        **_DENSE.tiny,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 128,
    },
)
