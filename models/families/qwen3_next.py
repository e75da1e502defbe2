"""Qwen3-Next 80B-A3B: layers as in Qwen3.5 with experts, their projections packed by head of q and k."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Block, Mlp, Moe
from ..common.config_keys import Key
from ..family import Tensors
from ..model_config import ModelConfig
from ..weights import roles
from . import qwen3_5, qwen3_5_moe

_NET = "model.layers.{layer}.linear_attn"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    step, dense = config.flags["decoder_sparse_step"], config.flags["mlp_only_layers"]
    own = 0 if layer == config.num_layers else layer  # that of multi-token prediction counts as a model's first
    sparse = own not in dense and (own + 1) % step == 0
    experts = Moe(order="softmax_topk", normalise=config.flags["norm_topk_prob"])
    return qwen3_5.mixer(config, layer), experts if sparse else Mlp()


_MOE = qwen3_5_moe.FAMILY
_GGUF = _MOE.gguf
assert _GGUF is not None
FAMILY = replace(
    _MOE,
    model_type="qwen3_next",
    architecture="Qwen3NextForCausalLM",
    text_architecture="",
    title="Qwen3-Next",
    gguf=replace(
        _GGUF,
        arch="qwen3next",
        tiled_values=False,
        joined=(("linear_attn.in_proj_qkvz.weight", ("attn_qkv.weight", "attn_gate.weight")),),
        names={**_GGUF.names, "attn_qkv": "", "ssm_ba": "linear_attn.in_proj_ba"},
    ),
    models="Qwen3-Next 80B-A3B, with its MTP layer or without",
    has="as Qwen3.5 MoE, with projections packed by head; `norm_topk_prob`; dense layers by `mlp_only_layers` and "
    "`decoder_sparse_step`; no positions among the inputs",
    keys=(
        *_MOE.keys,
        Key("intermediate_size", absent=5632),
        Key("num_experts", absent=512, also="num_local_experts"),
        Key("num_experts_per_tok", absent=10),
        Key("norm_topk_prob", "flag", absent=True),
        Key("decoder_sparse_step", absent=1),
        Key("mlp_only_layers", "layers", absent=(), null=()),
    ),
    layer=_layer,
    tensors={
        **_MOE.tensors,
        roles.DELTA_IN: Tensors("by_heads", (f"{_NET}.in_proj_qkvz.weight",)),
        roles.DELTA_GATES: Tensors("by_heads", (f"{_NET}.in_proj_ba.weight",)),
    },
    contract=replace(_MOE.contract, axes=()),
    axes=None,
    vision=None,
    tiny={
        **_MOE.tiny,
        "norm_topk_prob": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    },
)
