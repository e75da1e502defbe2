"""The gated delta net: linear attention, whose layers keep a state of fixed size instead of a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..common import roles
from ..common.graph_values import Ref
from ..model_config import ModelConfig
from .part import GraphPart
from .weights import Weight

UNIT_EPSILON = 1e-6  # of the square of a key's length


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """Norm; q, k, v and z; a convolution over q, k and v; the delta rule; a norm gated by z; projection; residual add.

    Attributes:
        key_heads: Heads of q and k; consecutive heads of v share one.
        heads: Heads of v and of the state.
        keys: Size of a head of q and k.
        values: Size of a head of v.
        taps: Tokens that the convolution is about, and columns of its state.
    """

    key_heads: int
    heads: int
    keys: int
    values: int
    taps: int

    @property
    def channels(self) -> int:
        """q, k and v side by side: what the convolution is over."""
        return 2 * self.key_heads * self.keys + self.heads * self.values

    @property
    def parts(self) -> dict[str, int]:
        """The channels of q, of k and of v, in their order."""
        return {"q": self.key_heads * self.keys, "k": self.key_heads * self.keys, "v": self.heads * self.values}

    @property
    def states(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what a slot hands from run to run."""
        return (1, self.channels, self.taps), (1, self.heads, self.keys, self.values)

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Yields its weights in the order of use."""
        hidden, wide = config.hidden_size, self.heads * self.values
        yield Weight(roles.ATTENTION_NORM, (hidden,))
        shared = self.heads // self.key_heads
        parts = (self.keys, self.keys, shared * self.values, shared * self.values)
        yield Weight(roles.DELTA_IN, (self.channels, wide), hidden, head_parts=parts)
        yield Weight(roles.DELTA_GATES, (self.heads, self.heads), hidden, head_parts=(shared, shared))
        yield Weight(roles.DELTA_TAPS, (self.channels,), taps=self.taps)
        yield Weight(roles.DELTA_RATE, (self.heads,))
        yield Weight(roles.DELTA_BIAS, (self.heads,))
        yield Weight(roles.DELTA_NORM, (self.values,))
        yield Weight(roles.DELTA_OUT, (hidden,), wide)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments and result as `Attention.lower`."""
        builder, config = part.builder, part.config
        (slot,) = part.slots
        assert slot.linear_mask is not None
        columns, state = slot.carried[layer]
        here, wide = f"layers.{layer}.delta", self.key_heads * self.keys
        batch, tokens, _ = x.shape

        def heads(name: str, x: Ref, first: int, count: int, size: int) -> Ref:
            flat = builder.slice(f"{here}.{name}_flat", x, first, first + count * size)
            return builder.reshape(f"{here}.{name}", flat, (batch, tokens, count, size))

        normed = part.norm(f"{here}.norm", x, roles.ATTENTION_NORM, layer)
        projected = part.linear(f"{here}.in", normed, roles.DELTA_IN, layer)
        gates = part.linear(f"{here}.gates", normed, roles.DELTA_GATES, layer)
        qkv, new_columns = builder.causal_conv(
            f"{here}.conv",
            builder.slice(f"{here}.qkv", projected, 0, self.channels),
            columns,
            part.weight(roles.DELTA_TAPS, layer),
            slot.current,
            slot.carried_names[layer][0],
        )
        # q and k of length 1: the mean of squares is their sum over K.
        both = heads("qk", qkv, 0, 2 * self.key_heads, self.keys)
        unit = builder.rms_norm(f"{here}.qk_unit", both, roles.UNIT_KEYS, UNIT_EPSILON / self.keys)
        unit = builder.reshape(f"{here}.qk_flat_unit", unit, (batch, tokens, 2 * wide))
        q = heads("q", unit, 0, self.key_heads, self.keys)
        k = heads("k", unit, wide, self.key_heads, self.keys)
        v = heads("v", qkv, 2 * wide, self.heads, self.values)
        beta = builder.slice(f"{here}.beta", gates, 0, self.heads)
        decay = builder.slice(f"{here}.decay", gates, self.heads, 2 * self.heads)
        mixed, new_state = builder.delta_rule(
            f"{here}.rule",
            (q, k, v),
            state,
            (decay, beta),
            (part.weight(roles.DELTA_RATE, layer), part.weight(roles.DELTA_BIAS, layer)),
            slot.linear_mask,
            slot.carried_names[layer][1],
        )
        slot.carried_on[layer] = (new_columns, new_state)
        mixed = part.norm(f"{here}.mix_norm", mixed, roles.DELTA_NORM, layer)
        z = heads("z", projected, self.channels, self.heads, self.values)
        gated = builder.gate_mul(f"{here}.gated", mixed, z, "silu")
        mixed = builder.reshape(f"{here}.mix", gated, (batch, tokens, self.heads * self.values))
        if part.kept_row is not None and layer + 1 == config.num_layers:
            x = builder.last_row(f"{here}.row", x, part.kept_row)
            mixed = builder.last_row(f"{here}.mix_row", mixed, part.kept_row)
        return builder.add(residual, x, part.linear(f"{here}.out", mixed, roles.DELTA_OUT, layer))
