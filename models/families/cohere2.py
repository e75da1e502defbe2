"""Command R7B and Command A: as Command-R, but only layers with a window rotate q and k."""

from __future__ import annotations

from dataclasses import replace

from ..blocks import Block
from ..common.config_keys import Only
from ..common.config_rules import window_of_most_layers
from ..model_config import ModelConfig
from . import cohere


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return cohere.layer_of(config, layer, rotated=config.windows[layer] is not None)


_GGUF = cohere.FAMILY.gguf
assert _GGUF is not None
FAMILY = replace(
    cohere.FAMILY,
    model_type="cohere2",
    architecture="Cohere2ForCausalLM",
    title="Command R7B and A",
    models="Command R7B, Command A, Tiny Aya",
    has="as Command-R; `sliding_window` in layers that `layer_types` names, or in all but every "
    "`sliding_window_pattern`th, and no rotation in the others",
    keys=(*cohere.FAMILY.keys, Only("use_qk_norm", False)),
    window=window_of_most_layers,
    layer=_layer,
    gguf=replace(_GGUF, arch="cohere2", windowed=True),
    rope_theta=10000.0,
    tiny={
        **cohere.FAMILY.tiny,
        "use_qk_norm": False,
        "rope_theta": 50000.0,
        "sliding_window": 10,
        "sliding_window_pattern": 2,
    },
)
