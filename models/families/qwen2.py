"""Qwen2 and Qwen2.5: biases on q, k and v, never on the output; no key says so."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only
from ..common.config_rules import window_of_some_layers
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import KEYS, TENSORS, TINY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(qkv_bias=True, window=config.windows[layer]), Mlp()


FAMILY = Family(
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    title="Qwen2 and Qwen2.5",
    models="Qwen2, Qwen2.5, DeepSeek-R1-Distill-Qwen",
    has="biases on q, k, v; `use_sliding_window` in the layers that `layer_types` or `max_window_layers` names; YaRN",
    keys=(*KEYS, Key("max_position_embeddings", absent=32768), Only("use_mrope", False)),
    window=window_of_some_layers,
    layer=_layer,
    tensors=TENSORS,
    gguf=Gguf(arch="qwen2"),
    tiny={
        **TINY,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e6,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
)
