"""The gated delta net: linear attention, whose layers keep a state of fixed size instead of a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..graphs.builder import GraphBuilder
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .shards import Shard
from .short_conv import convolved
from .weights import Weight

_UNIT_EPSILON = 1e-6  # of the square of a key's length


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

    def of(self, shard: Shard) -> DeltaNet:
        """The part of one device: its heads of q and k, and those of v that share them."""
        return replace(self, key_heads=len(shard.even(self.key_heads)), heads=len(shard.even(self.heads)))

    @property
    def states(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what a slot hands from run to run."""
        return (1, self.channels, self.taps), (1, self.heads, self.keys, self.values)

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, wide = config.hidden_size, self.heads * self.values
        yield Weight(roles.ATTENTION_NORM, (hidden,))
        shared = self.heads // self.key_heads
        parts = (self.keys, self.keys, shared * self.values, shared * self.values)
        sections = tuple(self.parts.values())
        yield Weight(roles.DELTA_IN, (self.channels, wide), hidden, sections=(*sections, wide), head_parts=parts)
        yield Weight(roles.DELTA_GATES, (self.heads, self.heads), hidden, head_parts=(shared, shared))
        yield Weight(roles.DELTA_TAPS, (self.channels,), sections=sections, taps=self.taps)
        yield Weight(roles.DELTA_RATE, (self.heads,))
        yield Weight(roles.DELTA_BIAS, (self.heads,))
        yield Weight(roles.DELTA_NORM, (self.values,))
        yield Weight(roles.DELTA_OUT, (hidden,), wide)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments and result as `Attention.lower`."""
        builder, config, mine = part.builder, part.config, self.of(part.shard)
        here = f"layers.{layer}.delta"
        batch, tokens, _ = x.shape

        normed = part.norm(f"{here}.norm", x, roles.ATTENTION_NORM, layer)
        projected = part.linear(f"{here}.in", normed, roles.DELTA_IN, layer)
        gates = part.linear(f"{here}.gates", normed, roles.DELTA_GATES, layer)
        slots = [mine._mix(part, slot, layer, projected, gates) for slot in range(batch)]
        mixed = part.rows_of_all(f"{here}.slots", slots)
        mixed = part.norm(f"{here}.mix_norm", mixed, roles.DELTA_NORM, layer)
        z = heads_of(builder, f"{here}.z", projected, mine.channels, mine.heads, self.values)
        gated = builder.gate_mul(f"{here}.gated", mixed, z, "silu")
        mixed = part.whole(
            f"{here}.mix",
            part.shard.even(self.heads).start * self.values,
            self.heads * self.values,
            lambda name: builder.reshape(name, gated, (batch, tokens, mine.heads * self.values)),
        )
        if part.kept_row is not None and layer + 1 == config.num_layers:
            x = builder.last_row(f"{here}.row", x, part.kept_row)
            mixed = builder.last_row(f"{here}.mix_row", mixed, part.kept_row)
        out = part.whole_hidden(f"{here}.out", lambda name: part.linear(name, mixed, roles.DELTA_OUT, layer))
        return builder.add(residual, x, out)

    def _mix(self, part: GraphPart, number: int, layer: int, projected: Ref, gates: Ref) -> Ref:
        """Convolution and delta rule of a slot, [1, T, heads, V]; under a mask of 0 its states stay what they are."""
        builder, here, slot = part.builder, f"layers.{layer}.delta", part.slots[number]
        end = f"_batch_{number}" if number else ""
        projected = part.rows_of_slot(f"{here}.in_slot{end}", projected, number)
        gates = part.rows_of_slot(f"{here}.gates_slot{end}", gates, number)
        assert slot.linear_mask is not None
        rows = builder.slice(f"{here}.qkv{end}", projected, 0, self.channels)
        qkv, new_columns = convolved(part, number, layer, here, rows, roles.DELTA_TAPS, None, silu=True)
        q, k = unit_heads(builder, here, qkv, self.key_heads, self.keys, end)
        v = heads_of(builder, f"{here}.v", qkv, 2 * self.key_heads * self.keys, self.heads, self.values, end)
        beta = builder.slice(f"{here}.beta{end}", gates, 0, self.heads)
        decay = builder.slice(f"{here}.decay{end}", gates, self.heads, 2 * self.heads)
        mixed, new_state = builder.delta_rule(
            f"{here}.rule{end}",
            (q, k, v),
            slot.carried[layer][1],
            (decay, beta),
            (part.weight(roles.DELTA_RATE, layer), part.weight(roles.DELTA_BIAS, layer)),
            slot.linear_mask,
            slot.carried_names[layer][1],
        )
        slot.carried_on[layer] = (new_columns, new_state)
        return mixed


def heads_of(builder: GraphBuilder, name: str, x: Ref, first: int, count: int, size: int, end: str = "") -> Ref:
    """Columns of [B, T, n], as heads [B, T, count, size]."""
    flat = builder.slice(f"{name}_flat{end}", x, first, first + count * size)
    return builder.reshape(f"{name}{end}", flat, (*x.shape[:2], count, size))


def unit_heads(builder: GraphBuilder, here: str, x: Ref, heads: int, size: int, end: str) -> tuple[Ref, Ref]:
    """Heads of q and k, each [B, T, heads, size] and of length 1: the first two parts of the columns of [B, T, n]."""
    # The mean of squares is their sum over `size`.
    both = heads_of(builder, f"{here}.qk", x, 0, 2 * heads, size, end)
    unit = builder.rms_norm(f"{here}.qk_unit{end}", both, roles.UNIT_KEYS, _UNIT_EPSILON / size)
    unit = builder.reshape(f"{here}.qk_flat_unit{end}", unit, (*x.shape[:2], 2 * heads * size))
    q = heads_of(builder, f"{here}.q", unit, 0, heads, size, end)
    return q, heads_of(builder, f"{here}.k", unit, heads * size, heads, size, end)
