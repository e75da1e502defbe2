"""GLM-4-9B and GLM-Edge in the form of transformers: GLM-4 0414 without its norms behind attention and MLP."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Attention, Block, Mlp
from ..family import Gguf
from ..model_config import ModelConfig
from . import glm4


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(qkv_bias=config.flags["attention_bias"]), Mlp()


FAMILY = replace(
    glm4.FAMILY,
    model_type="glm",
    architecture="GlmForCausalLM",
    title="GLM",
    models="GLM-4-9B, GLM-Edge 1.5B, 4B, in the form of transformers",
    has="as GLM-4, without norms behind attention and MLP",
    layer=_layer,
    gguf=Gguf(arch="chatglm", names={"ffn_up": "mlp.gate_up_proj"}),
)
