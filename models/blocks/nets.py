"""Layers that hand states of fixed size from run to run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ..model_config import ModelConfig
from .delta_net import DeltaNet
from .key_delta_net import KeyDeltaNet
from .mamba import Mamba
from .mamba2 import Mamba2
from .short_conv import ShortConv

Net: TypeAlias = DeltaNet | KeyDeltaNet | Mamba | Mamba2 | ShortConv


def nets_of(config: ModelConfig, layers: Iterable[int] | None = None) -> dict[int, Net]:
    """Returns those of some layers, or of all of a model."""
    chosen = range(config.num_layers) if layers is None else layers
    blocks = ((layer, block) for layer in chosen for block in config.blocks(layer))
    return {layer: block for layer, block in blocks if isinstance(block, Net)}
