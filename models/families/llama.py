"""Llama 2 and 3.x, and what keeps their architecture: no norms on q and k, biases only where the config asks."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import BIASES, KEYS, TENSORS, TINY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    return Attention(qkv_bias=bias, out_bias=bias), Mlp(bias=config.flags["mlp_bias"])


FAMILY = Family(
    model_type="llama",
    architecture="LlamaForCausalLM",
    title="Llama",
    models="Llama 2, 3, 3.1, 3.2 (text), 3.3, DeepSeek-R1-Distill-Llama",
    has="`attention_bias` on q, k, v, o; `mlp_bias` on gate, up, down; Llama 3's RoPE",
    keys=(*KEYS, Key("max_position_embeddings", absent=2048), *BIASES),
    layer=_layer,
    tensors=TENSORS,
    gguf=Gguf(arch="llama", alike=("internlm2",), interleaved=True),
    tiny={
        **TINY,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
)
