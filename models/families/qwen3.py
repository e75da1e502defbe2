"""Qwen3 dense, 0.6B to 32B: norms on the heads of q and k; biases on all of attention or on nothing."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..common.config_rules import window_of_some_layers
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import KEYS, TENSORS, TINY, hidden_per_head


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    return Attention(qk_norm=True, qkv_bias=bias, out_bias=bias, window=config.windows[layer]), Mlp()


FAMILY = Family(
    model_type="qwen3",
    architecture="Qwen3ForCausalLM",
    title="Qwen3 dense",
    models="Qwen3 0.6B to 32B, DeepSeek-R1-0528-Qwen3-8B",
    has="norms on the heads of q and k; `attention_bias`; `use_sliding_window` as Qwen2",
    keys=(
        *KEYS,
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("max_position_embeddings", absent=32768),
        Key("attention_bias", "flag", absent=False),
    ),
    window=window_of_some_layers,
    layer=_layer,
    tensors=TENSORS,
    gguf=Gguf(arch="qwen3"),
    tiny={**TINY, "head_dim": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0},
)
