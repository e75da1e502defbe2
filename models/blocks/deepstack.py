"""Features of the vision tower's early layers, added to the hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graphs.values import Ref
from ..model_config import ModelConfig
from .part import GraphPart
from .weights import Weight


@dataclass(frozen=True, slots=True)
class Deepstack:
    """Adds a graph input, zeros at the rows of text."""

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Has none."""
        return iter(())

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        (slot,) = part.slots
        features = slot.deepstack[layer]
        if features.shape != x.shape:  # behind the model's last attention, where one row is left
            assert part.kept_row is not None
            features = part.builder.last_row(f"layers.{layer}.deepstack_row", features, part.kept_row)
        return part.builder.add(residual, x, features)
