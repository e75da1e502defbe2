"""Qwen3-VL dense, 2B to 32B: the language model of Qwen3, with three positions for each token and deepstack inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ..blocks import Block, Deepstack
from ..common.config_keys import Key
from ..common.config_rules import axes_in_turns
from ..contract import Port
from ..family import Family, Gguf
from ..model_config import ModelConfig
from ..towers.qwen3 import QWEN3_VL
from . import qwen3
from .shared.dense import TENSORS, hidden_per_head
from .shared.vision_language import CONTRACT, TINY

Layer: TypeAlias = Callable[[ModelConfig, int], tuple[Block, ...]]
_DEEPSTACK = 3  # layers that add features of the vision tower, which has so many outputs for them


def stacked(layer: Layer) -> Layer:
    """Layers of a language model, the first ones with deepstack inputs behind them."""

    def blocks(config: ModelConfig, number: int) -> tuple[Block, ...]:
        own = layer(config, number)
        return (*own, Deepstack()) if number < _DEEPSTACK else own

    return blocks


FAMILY = Family(
    model_type="qwen3_vl",
    architecture="Qwen3VLForConditionalGeneration",
    title="Qwen3-VL dense",
    models="Qwen3-VL 2B, 4B, 8B, 32B",
    has="as Qwen3; positions in time, height and width, `mrope_section` in turns; features of the vision tower are "
    "added after the first three layers",
    keys=(
        *qwen3.FAMILY.keys,
        Key("head_dim", absent=128, null=hidden_per_head),
        Key("max_position_embeddings", absent=128000),
    ),
    layer=stacked(qwen3.FAMILY.layer),
    tensors=TENSORS,
    # Programs in C++ find both by their names, of which CONTRACT has other families' spelling.
    contract=replace(
        CONTRACT,
        axes=tuple(
            replace(port, name=port.alias or port.name, alias=port.alias and port.name) for port in CONTRACT.axes
        ),
        deepstack=Port("deepstack", "deepstack_image_embed_{layer}", ""),
    ),
    gguf=Gguf(arch="qwen3vl"),
    rope_theta=500000.0,
    axes=axes_in_turns,
    nested="text_config",
    vision=QWEN3_VL,
    tiny={**TINY, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [12, 10, 10]}},
)
