"""gpt-oss 20B and 120B: attention sinks, every other layer with a sliding window, experts with biases in MXFP4."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Attention, Block, Moe
from ..common.config_keys import Key
from ..common.config_rules import window_of_every_other_layer
from ..contract import Port
from ..family import Family, Gguf, gate_up, plain
from ..graphs.builder import Clamp
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.dense import CONTRACT, KEYS, TENSORS, TINY, all_heads, hidden_per_head

_LAYER = "model.layers.{layer}"
_ROUTER = f"{_LAYER}.mlp.router"
_EXPERT = f"{_LAYER}.mlp.experts.{{expert}}"  # as common/packed_experts.py names what a checkpoint packs


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    clamp = Clamp(alpha=config.flags["swiglu_alpha"], limit=config.flags["swiglu_limit"])
    attention = Attention(qkv_bias=bias, out_bias=bias, window=config.windows[layer], sinks=True)
    return attention, Moe(order="topk_softmax", bias=True, clamp=clamp)


FAMILY = Family(
    model_type="gpt_oss",
    architecture="GptOssForCausalLM",
    title="gpt-oss",
    models="gpt-oss-20b, gpt-oss-120b",
    has="a sink for every head; a window in every other layer, or by `layer_types`; `num_experts_per_tok` of "
    "`num_local_experts` MLPs for each token, with biases and a clamped SwiGLU (`swiglu_alpha`, `swiglu_limit`), in "
    "MXFP4 or floats",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=8, null=all_heads),
        Key("head_dim", absent=64, null=hidden_per_head),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=131072),
        Key("attention_bias", "flag", absent=True),
        Key("num_local_experts", also="num_experts"),
        Key("num_experts_per_tok"),
        Key("swiglu_alpha", "number", absent=1.702),
        Key("swiglu_limit", "number", absent=7.0),
    ),
    window=window_of_every_other_layer,
    layer=_layer,
    tensors={
        **TENSORS,
        roles.SINKS: plain(f"{_LAYER}.self_attn.sinks"),
        roles.ROUTER: plain(f"{_ROUTER}.weight"),
        roles.ROUTER_BIAS: plain(f"{_ROUTER}.bias"),
        roles.EXPERT_GATE_UP: gate_up(_EXPERT),
        roles.EXPERT_GATE_UP_BIAS: gate_up(_EXPERT, "bias"),
        roles.EXPERT_DOWN: plain(f"{_EXPERT}.down_proj.weight"),
        roles.EXPERT_DOWN_BIAS: plain(f"{_EXPERT}.down_proj.bias"),
    },
    contract=replace(
        CONTRACT,
        masks=(
            Port("local_attention_mask", "local_attention_mask", ""),
            Port("global_attention_mask", "global_attention_mask", ""),
        ),
    ),
    gguf=Gguf(
        arch="gpt-oss",
        windowed=True,
        names={
            "post_attention_norm": "post_attention_layernorm",
            "attn_sinks.weight": "self_attn.sinks",
            "ffn_gate_inp": "mlp.router",
        },
    ),
    experts=Experts.read,
    rope_scaling={
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    rope_theta=150000.0,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "sliding_window": 10,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
)
