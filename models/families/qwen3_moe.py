"""Qwen3 with a mixture of experts, 30B-A3B and 235B-A22B: attention as in Qwen3, no shared expert."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key
from ..common.config_rules import window_of_all_layers
from ..family import Family, Gguf, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TENSORS, TINY, expert_tensors

_MLP = "model.layers.{layer}.mlp"
_EXPERT = f"{_MLP}.experts.{{expert}}"


EXPERT_KEYS = (
    Key("num_experts", also="num_local_experts"),  # the other since transformers 5
    Key("num_experts_per_tok"),
    Key("moe_intermediate_size"),
    Key("norm_topk_prob", "flag", absent=False),
    Key("decoder_sparse_step", absent=1),
    Key("mlp_only_layers", "layers", absent=(), null=()),
)


def mlp_or_experts(config: ModelConfig, layer: int) -> Mlp | Moe:
    """What a layer has behind attention."""
    sparse = layer not in config.flags["mlp_only_layers"] and (layer + 1) % config.flags["decoder_sparse_step"] == 0
    return Moe(order="softmax_topk", normalise=config.flags.get("norm_topk_prob", True)) if sparse else Mlp()


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    attention = Attention(qk_norm=True, qkv_bias=bias, out_bias=bias, window=config.windows[layer])
    return attention, mlp_or_experts(config, layer)


FAMILY = Family(
    model_type="qwen3_moe",
    architecture="Qwen3MoeForCausalLM",
    title="Qwen3 MoE",
    models="Qwen3-30B-A3B, 235B-A22B",
    has="as Qwen3, with `num_experts_per_tok` of `num_experts` MLPs for each token; `norm_topk_prob`; dense layers by "
    "`mlp_only_layers` and `decoder_sparse_step`; a window in all layers",
    keys=(
        *KEYS,
        Key("max_position_embeddings", absent=32768),
        Key("attention_bias", "flag", absent=False),
        *EXPERT_KEYS,
    ),
    window=window_of_all_layers,
    layer=_layer,
    tensors={
        **TENSORS,
        roles.ROUTER: plain(f"{_MLP}.gate.weight"),
        **expert_tensors(_EXPERT),
    },
    gguf=Gguf(arch="qwen3moe"),
    experts=Experts.read,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "norm_topk_prob": True,
    },
)
