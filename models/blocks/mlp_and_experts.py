"""An MLP for every token, and beside it a mixture of experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graphs.builder import Gelu
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpAndExperts:
    """The MLP with norms on both sides; router and experts, each with a norm of its own; their sum, its norm, residual
    add.

    Sizes of the experts: `ModelConfig.experts`. The shares of the chosen ones add up to 1, before each is multiplied by
    a factor of the expert, which is in the matrix of its last projection here.

    Attributes:
        gelu: The function of gates.
    """

    gelu: Gelu

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, inner, experts = config.hidden_size, config.intermediate_size, config.experts
        assert experts is not None
        yield Weight(roles.MLP_NORM, (hidden,))
        yield Weight(roles.GATE_UP, (inner, inner), hidden)
        yield Weight(roles.DOWN, (hidden,), inner, config.padded_intermediate)
        yield Weight(roles.MLP_ALONE_NORM, (hidden,))
        yield Weight(roles.ROUTER_NORM, (hidden,), scale=hidden**-0.5)
        yield Weight(roles.ROUTER, (experts.count,), hidden)
        yield Weight(roles.EXPERTS_NORM, (hidden,))
        yield Weight(roles.EXPERT_GATE_UP, (experts.inner, experts.inner), hidden, experts=experts.count)
        yield Weight(
            roles.EXPERT_DOWN,
            (hidden,),
            experts.inner,
            experts.padded_inner,
            experts=experts.count,
            factors=roles.EXPERT_FACTORS,
        )
        yield Weight(roles.EXPERTS_OUT_NORM, (hidden,))
        yield Weight(roles.MLP_OUT_NORM, (hidden,))

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        builder, here = part.builder, f"layers.{layer}.mlp"
        gate_up = part.linear(
            f"{here}.gate_up", part.norm(f"{here}.norm", x, roles.MLP_NORM, layer), roles.GATE_UP, layer
        )
        dense = part.linear(f"{here}.down", builder.silu_mul(f"{here}.gelu_mul", gate_up, self.gelu), roles.DOWN, layer)
        both = builder.add(
            f"{here}.both",
            part.norm(f"{here}.alone_norm", dense, roles.MLP_ALONE_NORM, layer),
            part.norm(f"{here}.experts_norm", self._experts(part, x, layer), roles.EXPERTS_OUT_NORM, layer),
        )
        return builder.add(residual, x, part.norm(f"{here}.out_norm", both, roles.MLP_OUT_NORM, layer))

    def _experts(self, part: GraphPart, x: Ref, layer: int) -> Ref:
        builder, experts, here = part.builder, part.config.experts, f"layers.{layer}.experts"
        assert experts is not None
        logits = part.linear(
            f"{here}.router", part.norm(f"{here}.router_norm", x, roles.ROUTER_NORM, layer), roles.ROUTER, layer
        )
        ids, shares = builder.moe_route(f"{here}.route", logits, experts.chosen, "softmax_topk", True)
        normed = part.norm(f"{here}.norm", x, roles.EXPERTS_NORM, layer)
        gate_up = builder.moe_linear(f"{here}.gate_up", normed, ids, part.weight(roles.EXPERT_GATE_UP, layer))
        product = builder.silu_mul(f"{here}.gelu_mul", gate_up, self.gelu)
        down = builder.moe_linear(f"{here}.down", product, ids, part.weight(roles.EXPERT_DOWN, layer))
        return builder.moe_combine(f"{here}.sum", down, shares)
