"""Mixture of experts: a router chooses k of E MLPs for each token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..graphs.builder import Clamp
from ..graphs.values import Ref
from ..model_config import Experts, ModelConfig
from ..weights import roles
from ..weights.packing import BLOCK
from .conditioned import norm_weights
from .mlp import squared_relu
from .part import GraphPart
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Norm, router, the chosen experts' MLPs, their sum by weight, the shared expert, residual add.

    Sizes, whether there is a shared one, and whether experts read and write latent rows: `ModelConfig.experts`.

    Attributes:
        order: Whether the softmax is over all experts, before the choice, or over the chosen ones; `sigmoid` is that of
            each expert instead, to which a bias is added for the choice, `softmax` the same of the softmax over all;
            with `sparse_mixer` each chosen one has a softmax over those that are no better and near enough.
        threshold: How near, with `sparse_mixer`.
        normalise: The chosen experts' shares are divided by their sum.
        groups: How many groups of experts there are, and of how many of them those of a token come; None without.
        choice_bias: Of `sigmoid` and `softmax`: there is that bias.
        scale: Of the sum of the chosen experts.
        shared_gate: What the shared expert gives is multiplied by the sigmoid of a gate.
        bias: The router and all projections have biases.
        clamp: Of the product of gate and up; None for silu(gate) * up.
        in_norm: Rows are normalised before router and experts.
        out_norm: The sum is normalised before the residual add.
        alone: No expert has a gate, and this is the function of up.
        scaled_inputs: The one expert that is chosen reads rows times its share, and what it gives counts as it is.
        beside: They read the rows that attention of the layer has normalised.
        shared_scale: Of what the shared expert gives.
    """

    order: Literal["softmax_topk", "topk_softmax", "sigmoid", "softmax", "sparse_mixer"]
    threshold: float | None = None
    normalise: bool = False
    groups: tuple[int, int] | None = None
    choice_bias: bool = True
    scale: float = 1.0
    shared_gate: bool = True
    bias: bool = False
    clamp: Clamp | None = None
    in_norm: bool = True
    out_norm: bool = False
    alone: Literal["relu2"] | None = None
    scaled_inputs: bool = False
    beside: bool = False
    shared_scale: float = 1.0

    @property
    def has_choice_bias(self) -> bool:
        """Whether a bias counts in the choice alone."""
        return self.order in ("sigmoid", "softmax") and self.choice_bias

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, experts = config.hidden_size, config.experts
        assert experts is not None
        yield from norm_weights(config, roles.MLP_NORM if self.in_norm else None)
        yield Weight(roles.ROUTER, (experts.count,), hidden)
        rows = experts.latent or hidden
        if experts.latent is not None:
            yield Weight(roles.EXPERT_LATENT, (rows,), hidden)
        yield self._up(roles.EXPERT_UP, roles.EXPERT_GATE_UP, experts.inner, rows, experts.count)
        yield Weight(
            self._down(experts), (rows,), experts.inner, experts.padded_inner, experts=experts.count, scale=self.scale
        )
        if experts.latent is not None:
            yield Weight(roles.EXPERT_LATENT_OUT, (hidden,), rows)
        if experts.shared is not None:
            yield self._up(roles.SHARED_UP, roles.SHARED_GATE_UP, experts.shared, hidden)
            scale = self.shared_scale
            yield Weight(roles.SHARED_DOWN, (hidden,), experts.shared, experts.padded_shared, scale=scale)
            if self.shared_gate:
                yield Weight(roles.SHARED_GATE, (1,), hidden)
        if self.has_choice_bias:
            yield Weight(roles.ROUTER_CHOICE, (experts.count,))
        if self.bias:
            yield Weight(roles.ROUTER_BIAS, (experts.count,))
            yield Weight(roles.EXPERT_GATE_UP_BIAS, (experts.inner, experts.inner), experts=experts.count)
            yield Weight(roles.EXPERT_DOWN_BIAS, (hidden,), experts=experts.count)
        if self.out_norm:
            yield Weight(roles.MLP_OUT_NORM, (hidden,), scale=config.residual_scale)

    def _up(self, alone: roles.Role, gated: roles.Role, inner: int, inputs: int, experts: int | None = None) -> Weight:
        """Up of each expert, beside its gate if there is one."""
        if self.alone is not None:
            return Weight(alone, (inner,), inputs, experts=experts, multiple=BLOCK)
        return Weight(gated, (inner, inner), inputs, experts=experts)

    @staticmethod
    def _down(experts: Experts) -> roles.Role:
        return roles.EXPERT_DOWN if experts.latent is None else roles.EXPERT_LATENT_DOWN

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        builder, shard, experts = part.builder, part.shard, part.config.experts
        assert experts is not None
        here = f"layers.{layer}.moe"
        if self.beside:
            normed = part.normed_before(f"{here}.norm", x, layer)
        else:
            normed = part.norm_of_hidden(f"{here}.norm", x, roles.MLP_NORM, layer) if self.in_norm else x
        logits = part.linear(f"{here}.router", normed, roles.ROUTER, layer, roles.ROUTER_BIAS if self.bias else None)
        choice = part.weight(roles.ROUTER_CHOICE, layer) if self.has_choice_bias else None
        ids, shares = builder.moe_route(
            f"{here}.route", logits, experts.chosen, self.order, self.normalise, choice, self.groups, self.threshold
        )

        def linear(name: str, x: Ref, role: roles.Role, bias: roles.Role) -> Ref:
            vectors = part.weight(bias, layer) if self.bias else None
            return builder.moe_linear(name, x, ids, part.weight(role, layer), vectors)

        first, width = shard.expert_inner.start, experts.padded_inner
        read = normed if experts.latent is None else part.linear(f"{here}.in", normed, roles.EXPERT_LATENT, layer)
        if self.scaled_inputs:
            alone = builder.reshape(f"{here}.alone", read, (*read.shape[:2], 1, read.shape[2]))
            read = builder.moe_combine(f"{here}.scaled", alone, shares)
        if self.alone is None:
            gate_up = linear(f"{here}.gate_up", read, roles.EXPERT_GATE_UP, roles.EXPERT_GATE_UP_BIAS)
            product = part.whole(
                f"{here}.silu_mul", first, width, lambda name: builder.silu_mul(name, gate_up, self.clamp)
            )
        else:
            up = part.whole(
                f"{here}.up",
                first,
                width,
                lambda name: builder.moe_linear(name, read, ids, part.weight(roles.EXPERT_UP, layer)),
            )
            product = squared_relu(builder, here, up)
        down = linear(f"{here}.down", product, self._down(experts), roles.EXPERT_DOWN_BIAS)
        if self.scaled_inputs:
            rows = (*down.shape[:2], down.shape[3])
            out = part.whole_hidden(f"{here}.out", lambda name: builder.reshape(name, down, rows))
        elif experts.latent is None:
            out = part.whole_hidden(f"{here}.out", lambda name: builder.moe_combine(name, down, shares))
        else:
            latent = builder.moe_combine(f"{here}.latent", down, shares)
            out = part.linear(f"{here}.out", latent, roles.EXPERT_LATENT_OUT, layer)
        if experts.shared is not None:
            out = builder.add(f"{here}.all", out, self._shared(part, normed, layer))
        if self.out_norm:
            out = part.norm(f"{here}.out_norm", out, roles.MLP_OUT_NORM, layer)
        return builder.add(residual, x, out)

    def _shared(self, part: GraphPart, normed: Ref, layer: int) -> Ref:
        """What the expert of every token gives, times the sigmoid of its gate if it has one; on each device whole."""
        builder, here = part.builder, f"layers.{layer}.moe.shared"
        if self.alone is None:
            gate_up = part.linear(f"{here}.gate_up", normed, roles.SHARED_GATE_UP, layer)
            product = builder.silu_mul(f"{here}.silu_mul", gate_up)
        else:
            product = squared_relu(builder, here, part.linear(f"{here}.up", normed, roles.SHARED_UP, layer))
        out = part.linear(f"{here}.down", product, roles.SHARED_DOWN, layer)
        if not self.shared_gate:
            return out
        gate = part.linear(f"{here}.gate", normed, roles.SHARED_GATE, layer)
        return builder.gate_mul(f"{here}.out", out, gate, "sigmoid")
