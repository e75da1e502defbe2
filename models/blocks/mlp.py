"""The gated MLP: down(silu(gate x) * up x), or another function of the gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graphs.builder import Gelu
from ..graphs.values import Ref
from ..model_config import ModelConfig, padded_rows
from ..weights import roles
from .conditioned import lower_norm, lower_residual, norm_weights
from .part import GraphPart
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """Norm, gate and up in one Linear, product, down, and its norm, residual add.

    Attributes:
        bias: All three projections have biases.
        gelu: The function of the gate, where it is not silu.
        in_norm: Rows are normalised before gate and up.
        out_norm: What down gives is normalised before the residual add.
        inner: Its intermediate size; None for that of the model.
    """

    bias: bool = False
    gelu: Gelu | None = None
    in_norm: bool = True
    out_norm: bool = False
    inner: int | None = None

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Yields its weights in the order of use."""
        hidden, inner = config.hidden_size, self.inner or config.intermediate_size
        yield from norm_weights(config, roles.MLP_NORM if self.in_norm else None)
        yield Weight(roles.GATE_UP, (inner, inner), hidden)
        if self.bias:
            yield Weight(roles.GATE_UP_BIAS, (inner, inner))
        yield Weight(roles.DOWN, (hidden,), inner, padded_rows(inner))
        if self.bias:
            yield Weight(roles.DOWN_BIAS, (hidden,))
        if self.out_norm:
            yield Weight(roles.MLP_OUT_NORM, (hidden,), scale=config.residual_scale)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        builder, config, shard = part.builder, part.config, part.shard
        here = f"layers.{layer}.mlp"
        normed, gate = lower_norm(part, f"{here}.norm", x, roles.MLP_NORM if self.in_norm else None, layer)
        bias = roles.GATE_UP_BIAS if self.bias else None
        gate_up = part.linear(f"{here}.gate_up", normed, roles.GATE_UP, layer, bias)
        product = part.whole(
            f"{here}.silu_mul",
            shard.inner.start,
            padded_rows(self.inner or config.intermediate_size),
            lambda name: builder.silu_mul(name, gate_up, self.gelu),
        )
        down_bias = roles.DOWN_BIAS if self.bias else None
        out = part.whole_hidden(f"{here}.out", lambda name: part.linear(name, product, roles.DOWN, layer, down_bias))
        if self.out_norm:
            out = part.norm(f"{here}.out_norm", out, roles.MLP_OUT_NORM, layer)
        return lower_residual(part, residual, x, out, gate)
