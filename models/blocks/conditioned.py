"""Norms of hidden states before a block, and the residual behind it.

In some models an input of the graph conditions them: a Linear makes of it what scales and shifts the normed rows, and a
gate of what the block gives.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .weights import Weight


def norm_weights(config: ModelConfig, norm: roles.Role | None, scale: float = 1.0) -> Iterator[Weight]:
    """Yields its weight and bias, which `scale` multiplies, or those of the Linear; nothing without a norm."""
    if norm is None or not config.norm_weight:
        return
    if config.condition_size is None:
        yield Weight(norm, (config.hidden_size,), scale=scale)
        if config.norm_bias:
            yield Weight(roles.NORM_BIASES[norm], (config.hidden_size,), scale=scale)
        return
    weight, bias = roles.CONDITIONS[norm]
    yield Weight(weight, (3 * config.hidden_size,), config.condition_size)
    yield Weight(bias, (3 * config.hidden_size,))


def lower_norm(
    part: GraphPart, name: str, x: Ref, norm: roles.Role | None, layer: int | None = None
) -> tuple[Ref, Ref | None]:
    """[B, T, H] -> normed rows, and the gate [1, 1, H] of what is made of them, if there is one; `x` without a norm."""
    builder, size = part.builder, part.config.hidden_size
    if norm is None:
        return x, None
    if part.condition is None:
        return part.norm_of_hidden(name, x, norm, layer), None
    weight, bias = roles.CONDITIONS[norm]
    made = part.linear(f"{name}.condition", part.condition, weight, layer, bias)
    scale, shift, gate = (
        builder.part(f"{name}.{what}", made, 2, first * size, (first + 1) * size)
        for first, what in enumerate(("scale", "shift", "gate"))
    )
    unit = builder.rms_norm(f"{name}.unit", x, roles.ones(size), part.config.rms_norm_eps)
    scaled = builder.repeated(
        "Mul", f"{name}.scaled", unit, builder.repeated("Add", f"{name}.scale_1", scale, builder.weight(roles.ONE))
    )
    return builder.repeated("Add", name, scaled, shift), gate


def lower_residual(part: GraphPart, name: str, x: Ref, out: Ref, gate: Ref | None) -> Ref:
    """The sum of `x` and what a block makes of its norm, times the gate of that norm."""
    if gate is not None:
        out = part.builder.repeated("Mul", f"{name}.gated", out, gate)
    return part.builder.add(name, x, out)
