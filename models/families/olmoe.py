"""OLMoE 1B-7B: norms over all heads of q and of k, and in every layer a mixture of experts."""

from __future__ import annotations

from ..blocks import Attention, Block, Moe
from ..common.config_keys import Key, Only
from ..family import Family, Gguf
from ..model_config import Experts, ModelConfig
from . import qwen3_moe
from .shared.dense import KEYS, TINY
from .shared.gguf import not_normalised


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    attention = Attention(wide_norm=True, qkv_bias=bias, out_bias=bias)
    return attention, Moe(order="softmax_topk", normalise=config.flags["norm_topk_prob"])


FAMILY = Family(
    model_type="olmoe",
    architecture="OlmoeForCausalLM",
    title="OLMoE",
    models="OLMoE 1B-7B",
    has="norms over all heads of q and k; `attention_bias` on q, k, v, o; `num_experts_per_tok` of `num_experts` MLPs "
    "for each token; `norm_topk_prob`",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=4096),
        Key("attention_bias", "flag", absent=False),
        Key("num_experts", absent=64, also="num_local_experts"),
        Key("num_experts_per_tok", absent=8),
        Key("norm_topk_prob", "flag", absent=False),
        Only("clip_qkv", None),
    ),
    layer=_layer,
    tensors=qwen3_moe.FAMILY.tensors,
    gguf=Gguf(arch="olmoe", derived=not_normalised),
    experts=Experts.read,
    tiny={
        **TINY,
        "intermediate_size": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": False,
    },
)
