"""An MLP in which few gates of a token are kept: those that are some deviations above the mean of its gates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .conditioned import norm_weights
from .part import GraphPart
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseMlp:
    """Norm, gate and up in one Linear, GELU of what a gate is above the cutoff, product, down, and its norm, residual
    add.

    Attributes:
        sparsity: The share of gates that are below the cutoff where gates are distributed normally, between 0 and 1.
        inner: Its intermediate size.
    """

    sparsity: float
    inner: int

    @property
    def deviations(self) -> float:
        """How many of them the cutoff is above the mean."""
        return NormalDist().inv_cdf(self.sparsity)

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden = config.hidden_size
        yield from norm_weights(config, roles.MLP_NORM)
        yield Weight(roles.SPARSE_GATE_UP, (self.inner, self.inner), hidden)
        yield Weight(roles.DOWN, (hidden,), self.inner)
        yield Weight(roles.MLP_OUT_NORM, (hidden,), scale=config.residual_scale)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        builder, here = part.builder, f"layers.{layer}.mlp"
        normed = part.norm_of_hidden(f"{here}.norm", x, roles.MLP_NORM, layer)
        gate_up = part.linear(f"{here}.gate_up", normed, roles.SPARSE_GATE_UP, layer)
        kept = builder.function("GeluTanh", f"{here}.gelu", self._kept(part, here, gate_up, layer))
        up = builder.slice(f"{here}.up", gate_up, self.inner, 2 * self.inner)
        down = part.linear(f"{here}.out", builder.mul(f"{here}.product", kept, up), roles.DOWN, layer)
        return builder.add(residual, x, part.norm(f"{here}.out_norm", down, roles.MLP_OUT_NORM, layer))

    def _kept(self, part: GraphPart, here: str, gate_up: Ref, layer: int) -> Ref:
        """How far gates are above the cutoff; 0 for those that are not."""
        builder = part.builder
        gate = builder.part(f"{here}.gate", gate_up, 2, 0, self.inner)
        mean = builder.function_of_rows("ReduceMean", f"{here}.mean", gate)
        centred = builder.repeated("Sub", f"{here}.centred", gate, mean)
        squares = builder.mul(f"{here}.squares", centred, centred)
        deviation = builder.function(
            "Sqrt", f"{here}.deviation", builder.function_of_rows("ReduceMean", f"{here}.variance", squares)
        )
        cutoff = builder.times(f"{here}.least", deviation, roles.cutoff(layer))
        return builder.function("Relu", f"{here}.kept", builder.repeated("Sub", f"{here}.above", centred, cutoff))


def constants(config: ModelConfig) -> Iterator[tuple[str, float]]:
    """Yields the deviations of each layer with such an MLP."""
    for layer in range(config.num_layers):
        for block in config.blocks(layer):
            if isinstance(block, SparseMlp):
                yield roles.cutoff(layer), block.deviations
