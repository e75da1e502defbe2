"""Rows of a graph's input that are made of longer ones: through one pair of Linears, through another, or past both.

    row = (text(source) * role + other(source) * (1 - role)) * (1 - bypass) + handed * bypass

with numbers `role` and `bypass` of each row, 0 or 1: the talker of Qwen3-Omni.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .weights import Weight

_TEXT = (roles.TEXT_UP, roles.TEXT_UP_BIAS, roles.TEXT_DOWN, roles.TEXT_DOWN_BIAS)
_OTHER = (roles.OTHER_UP, roles.OTHER_UP_BIAS, roles.OTHER_DOWN, roles.OTHER_DOWN_BIAS)


def mixed_input_weights(config: ModelConfig) -> Iterator[Weight]:
    """Yields those of the Linears, where rows are made so."""
    if config.source_size is None:
        return
    inner, hidden = config.intermediate_size, config.hidden_size
    for up, up_bias, down, down_bias in (_OTHER, _TEXT):
        yield Weight(up, (inner,), config.source_size)
        yield Weight(up_bias, (inner,))
        yield Weight(down, (hidden,), inner)
        yield Weight(down_bias, (hidden,))


def lower_mixed_input(part: GraphPart, source: Ref, given: Mapping[str, Ref]) -> Ref:
    """[1, T, source], and by role the other inputs -> hidden states [1, T, H]."""
    other, text = _projected(part, "other", source, _OTHER), _projected(part, "text", source, _TEXT)
    made = _chosen(part, "input.made", given["role_mask"], text, other)
    return _chosen(part, "input.rows", given["bypass_mask"], given["bypass_embeddings"], made)


def _projected(part: GraphPart, name: str, x: Ref, linears: tuple[roles.Role, ...]) -> Ref:
    up, up_bias, down, down_bias = linears
    inner = part.builder.function("Silu", f"{name}_input.silu", part.linear(f"{name}_input.up", x, up, bias=up_bias))
    return part.linear(f"{name}_input", inner, down, bias=down_bias)


def _chosen(part: GraphPart, name: str, mask: Ref, one: Ref, other: Ref) -> Ref:
    """one * mask + other * (1 - mask)."""
    builder = part.builder
    rest = builder.repeated("Sub", f"{name}.rest", builder.weight(roles.ONE), mask)
    parts = (
        builder.repeated("Mul", f"{name}.{of}", *pair) for of, pair in (("one", (one, mask)), ("other", (other, rest)))
    )
    return builder.add(name, *parts)
