"""A factor of the hidden states behind a layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .weights import Weight


@dataclass(frozen=True, slots=True)
class LayerScale:
    """Multiplies by one number."""

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Yields the number."""
        yield Weight(roles.LAYER_SCALE, (1,))

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        return part.builder.times(residual, x, part.weight(roles.LAYER_SCALE, layer))
