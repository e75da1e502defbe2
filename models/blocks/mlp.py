"""The MLP: down(silu(gate x) * up x), or another function of the gate, or down of a function of up x alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..graphs.builder import Gelu, GraphBuilder
from ..graphs.values import Ref
from ..model_config import ModelConfig, padded_rows
from ..weights import roles
from ..weights.packing import BLOCK
from .conditioned import lower_norm, lower_residual, norm_weights
from .part import GraphPart
from .weights import Weight

# What is done to each element between up and down, where there is no gate; `relu2` is the square of Relu.
Alone: TypeAlias = Literal["gelu", "gelu_tanh", "relu", "relu2", "xielu"]
_ONE_OP = {"gelu": "Gelu", "gelu_tanh": "GeluTanh", "relu": "Relu"}
XIELU = (roles.XIELU_POSITIVE, roles.XIELU_NEGATIVE, roles.XIELU_SLOPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """Norm, gate and up in one Linear, product, down, and its norm, residual add.

    Attributes:
        bias: All projections have biases.
        gelu: The function of the gate, where it is not silu.
        alone: The function of up, where there is no gate.
        beside: It reads what attention of the layer reads, not what that gives: with `in_norm` normalised by a norm of
            its own, else the same normalised rows.
        in_norm: Rows are normalised before gate and up.
        out_norm: What down gives is normalised before the residual add.
        sum_norm: The sum of the residual add is normalised, and no row before.
        inner: Its intermediate size; None for that of the model.
        gate_scale: What multiplies the gate.
        out_scale: What multiplies the result, or the weight of its norm.
    """

    bias: bool = False
    gelu: Gelu | None = None
    alone: Alone | None = None
    beside: bool = False
    in_norm: bool = True
    out_norm: bool = False
    sum_norm: bool = False
    inner: int | None = None
    gate_scale: float = 1.0
    out_scale: float = 1.0

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, inner = config.hidden_size, self.inner or config.intermediate_size
        yield from norm_weights(config, roles.MLP_NORM if self.in_norm or self.sum_norm else None)
        if self.alone is None:
            scales = () if self.gate_scale == 1 else (self.gate_scale, 1.0)
            yield Weight(roles.GATE_UP, (inner, inner), hidden, scales=scales)
            if self.bias:
                yield Weight(roles.GATE_UP_BIAS, (inner, inner))
        else:
            yield Weight(roles.UP, (inner,), hidden, multiple=BLOCK)
            if self.bias:
                yield Weight(roles.UP_BIAS, (inner,), multiple=BLOCK)
        if self.alone == "xielu":
            yield from (Weight(role, (1,)) for role in XIELU)
        scale = 1.0 if self.out_norm else self.out_scale
        yield Weight(roles.DOWN, (hidden,), inner, padded_rows(inner), scale=scale)
        if self.bias:
            yield Weight(roles.DOWN_BIAS, (hidden,))
        if self.out_norm:
            yield Weight(roles.MLP_OUT_NORM, (hidden,), scale=config.residual_scale * self.out_scale)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        here = f"layers.{layer}.mlp"
        normed, gate = self._normed(part, here, x, layer)
        product = self._product(part, here, normed, layer)
        down_bias = roles.DOWN_BIAS if self.bias else None
        out = part.whole_hidden(f"{here}.out", lambda name: part.linear(name, product, roles.DOWN, layer, down_bias))
        if self.out_norm:
            out = part.norm(f"{here}.out_norm", out, roles.MLP_OUT_NORM, layer)
        if self.sum_norm:
            return part.norm_of_hidden(residual, part.builder.add(f"{here}.sum", x, out), roles.MLP_NORM, layer)
        return lower_residual(part, residual, x, out, gate)

    def _normed(self, part: GraphPart, here: str, x: Ref, layer: int) -> tuple[Ref, Ref | None]:
        """What the projections read, and the gate of a conditioned norm."""
        norm, name = roles.MLP_NORM if self.in_norm else None, f"{here}.norm"
        if not self.beside:
            return lower_norm(part, name, x, norm, layer)
        if norm is not None:
            return lower_norm(part, name, part.before[layer][0], norm, layer)
        return part.normed_before(name, x, layer), None

    def _product(self, part: GraphPart, here: str, normed: Ref, layer: int) -> Ref:
        """What the projection back to the hidden size reads."""
        builder, first = part.builder, part.shard.inner.start
        width = padded_rows(self.inner or part.config.intermediate_size)
        if self.alone is None:
            bias = roles.GATE_UP_BIAS if self.bias else None
            gate_up = part.linear(f"{here}.gate_up", normed, roles.GATE_UP, layer, bias)
            return part.whole(f"{here}.silu_mul", first, width, lambda name: builder.silu_mul(name, gate_up, self.gelu))
        bias = roles.UP_BIAS if self.bias else None
        up = part.whole(f"{here}.up", first, width, lambda name: part.linear(name, normed, roles.UP, layer, bias))
        return self._bent(part, here, up, layer)

    def _bent(self, part: GraphPart, here: str, up: Ref, layer: int) -> Ref:
        """The function of each element."""
        builder, name = part.builder, f"{here}.bent"
        if self.alone in _ONE_OP:
            return builder.function(_ONE_OP[self.alone], name, up)
        if self.alone == "relu2":
            return squared_relu(builder, here, up)
        positive = builder.function("Relu", f"{here}.positive", up)
        # The slope, which files add to the factor of negative elements, multiplies Elu instead: that is x plus what the
        # factor multiplies.
        squared, negative, slope = (part.weight(role, layer) for role in XIELU)
        bent = builder.function("Elu", f"{here}.elu", up, {"alpha": 1.0, "beta": 1.0})
        below = builder.sub(f"{here}.below", bent, up)
        both = builder.add(
            f"{here}.factors",
            builder.times(f"{here}.squared", builder.mul(f"{here}.square", positive, positive), squared),
            builder.times(f"{here}.negative", below, negative),
        )
        return builder.add(name, both, builder.times(f"{here}.slope", bent, slope))


def squared_relu(builder: GraphBuilder, here: str, up: Ref) -> Ref:
    """The square of Relu of each element."""
    positive = builder.function("Relu", f"{here}.positive", up)
    return builder.mul(f"{here}.bent", positive, positive)
