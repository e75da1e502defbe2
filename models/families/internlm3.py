"""InternLM3 8B: Llama with heads whose size is given, and biases on all Linears of attention and MLP or on some."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family
from ..model_config import ModelConfig
from .shared.dense import KEYS, TENSORS, TINY, all_heads, hidden_per_head


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    return Attention(qkv_bias=flags["attention_bias"], out_bias=flags["mlp_bias"]), Mlp(bias=flags["mlp_bias"])


FAMILY = Family(
    model_type="internlm3",
    architecture="InternLM3ForCausalLM",
    saved_as="LlamaForCausalLM",
    title="InternLM3",
    models="InternLM3-8B",
    has="`qkv_bias` on q, k, v; `bias` on o, gate, up, down",
    keys=(
        *KEYS,
        Key("num_key_value_heads", absent=2, null=all_heads),
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=32768),
        Key("attention_bias", "flag", absent=False, also="qkv_bias"),
        Key("mlp_bias", "flag", absent=False, also="bias"),
    ),
    layer=_layer,
    tensors=TENSORS,
    tiny={
        **TINY,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "qkv_bias": True,
        "bias": True,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 5e4, "factor": 6.0},
    },
)
