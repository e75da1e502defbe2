"""Mixture of experts: a router chooses k of E gated MLPs for each token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..common import roles
from ..common.graph_builder import Ref
from ..family import ModelConfig
from .part import GraphPart
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Norm, router, the chosen experts' gated MLPs, their sum by weight, residual add. Sizes: `ModelConfig.experts`.

    Attributes:
        order: Whether the softmax is over all experts, before the choice, or over the chosen ones.
        normalise: The chosen experts' shares are divided by their sum.
    """

    order: Literal["softmax_topk", "topk_softmax"]
    normalise: bool = False

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Yields its weights in the order of use."""
        hidden, experts = config.hidden_size, config.experts
        assert experts is not None
        yield Weight(roles.MLP_NORM, (hidden,))
        yield Weight(roles.ROUTER, (experts.count,), hidden)
        yield Weight(roles.EXPERT_GATE_UP, (experts.inner, experts.inner), hidden, experts=experts.count)
        yield Weight(roles.EXPERT_DOWN, (hidden,), experts.inner, experts.padded_inner, experts=experts.count)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        builder, config, shard, experts = part.builder, part.config, part.shard, part.config.experts
        assert experts is not None
        here = f"layers.{layer}.moe"
        normed = part.norm(f"{here}.norm", x, roles.MLP_NORM, layer)
        logits = part.linear(f"{here}.router", normed, roles.ROUTER, layer)
        ids, shares = builder.moe_route(f"{here}.route", logits, experts.chosen, self.order, self.normalise)
        gate_up = builder.moe_linear(f"{here}.gate_up", normed, ids, part.weight(roles.EXPERT_GATE_UP, layer))
        product = part.whole(
            f"{here}.silu_mul",
            shard.expert_inner.start,
            experts.padded_inner,
            lambda name: builder.silu_mul(name, gate_up),
        )
        down = builder.moe_linear(f"{here}.down", product, ids, part.weight(roles.EXPERT_DOWN, layer))
        out = part.whole(
            f"{here}.out",
            shard.hidden.start,
            config.hidden_size,
            lambda name: builder.moe_combine(name, down, shares),
        )
        return builder.add(residual, x, out)
