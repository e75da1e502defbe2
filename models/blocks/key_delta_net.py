"""Kimi's delta attention: the delta rule with a decay for each element of a key, and a norm gated by a sigmoid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .delta_net import heads_of, unit_heads
from .part import GraphPart
from .shards import Shard
from .short_conv import convolved
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDeltaNet:
    """Norm; q, k and v; a convolution over them; decays and shares; the delta rule; a norm, gated; projection; residual
    add. Decays and gates are made by two Linears each, with as many numbers between as a head has.

    Attributes:
        heads: Of q, k and v, and of the state.
        keys: Size of each of them.
        taps: Tokens that the convolution is about, and columns of its state.
    """

    heads: int
    keys: int
    taps: int

    @property
    def wide(self) -> int:
        """Elements of all heads of one of the three."""
        return self.heads * self.keys

    @property
    def parts(self) -> dict[str, int]:
        """The channels of q, of k and of v, in their order."""
        return {"q": self.wide, "k": self.wide, "v": self.wide}

    @property
    def states(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what a slot hands from run to run."""
        return (1, 3 * self.wide, self.taps), (1, self.heads, self.keys, self.keys)

    def of(self, shard: Shard) -> KeyDeltaNet:
        """All of it: no device has a part."""
        return self

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, wide, between = config.hidden_size, self.wide, self.keys
        yield Weight(roles.ATTENTION_NORM, (hidden,))
        yield Weight(roles.KDA_IN, (wide, wide, wide), hidden)
        yield Weight(roles.KDA_TAPS, (wide, wide, wide), taps=self.taps)
        yield Weight(roles.KDA_DECAY_DOWN, (between,), hidden)
        yield Weight(roles.KDA_DECAY_UP, (wide,), between)
        yield Weight(roles.KDA_DECAY_BIAS, (wide,))
        yield Weight(roles.KDA_RATE, (self.heads,))
        yield Weight(roles.KDA_BETA, (self.heads,), hidden)
        yield Weight(roles.KDA_GATE_DOWN, (between,), hidden)
        yield Weight(roles.KDA_GATE_UP, (wide,), between)
        yield Weight(roles.DELTA_NORM, (self.keys,))
        yield Weight(roles.DELTA_OUT, (hidden,), wide)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments and result as `Attention.lower`."""
        builder, config, here = part.builder, part.config, f"layers.{layer}.delta"
        batch, tokens, _ = x.shape
        normed = part.norm(f"{here}.norm", x, roles.ATTENTION_NORM, layer)
        rows = (
            part.linear(f"{here}.in", normed, roles.KDA_IN, layer),
            self._decays(part, here, normed, layer),
            builder.function("Sigmoid", f"{here}.beta", part.linear(f"{here}.raw_beta", normed, roles.KDA_BETA, layer)),
        )
        slots = [self._mix(part, slot, layer, rows) for slot in range(batch)]
        mixed = part.rows_of_all(f"{here}.slots", slots)
        mixed = part.norm(f"{here}.mix_norm", mixed, roles.DELTA_NORM, layer)
        down = part.linear(f"{here}.gate_down", normed, roles.KDA_GATE_DOWN, layer)
        gates = part.linear(f"{here}.gate_up", down, roles.KDA_GATE_UP, layer)
        flat = builder.reshape(f"{here}.flat", mixed, (batch, tokens, self.wide))
        mixed = builder.gate_mul(f"{here}.mix", flat, gates, "sigmoid")
        if part.kept_row is not None and layer + 1 == config.num_layers:
            x = builder.last_row(f"{here}.row", x, part.kept_row)
            mixed = builder.last_row(f"{here}.mix_row", mixed, part.kept_row)
        return builder.add(residual, x, part.linear(f"{here}.out", mixed, roles.DELTA_OUT, layer))

    def _decays(self, part: GraphPart, here: str, normed: Ref, layer: int) -> Ref:
        """Logarithms of what is left of each key, [B, T, heads, K]."""
        builder = part.builder
        down = part.linear(f"{here}.decay_down", normed, roles.KDA_DECAY_DOWN, layer)
        raw = part.linear(f"{here}.decay_up", down, roles.KDA_DECAY_UP, layer, roles.KDA_DECAY_BIAS)
        steps = builder.function("Softplus", f"{here}.steps", raw)
        by_head = builder.reshape(f"{here}.steps_of_heads", steps, (*raw.shape[:2], self.heads, self.keys))
        return builder.repeated("Mul", f"{here}.decay", by_head, builder.weight(part.weight(roles.KDA_RATE, layer)))

    def _mix(self, part: GraphPart, number: int, layer: int, rows: tuple[Ref, Ref, Ref]) -> Ref:
        """Convolution and delta rule of a slot, [1, T, heads, K], of its q, k and v, its decays and its shares."""
        builder, slot, end = part.builder, part.slots[number], f"_batch_{number}" if number else ""
        here = f"layers.{layer}.delta"
        names = ("qkv", "decay", "beta")
        qkv, decay, beta = (
            part.rows_of_slot(f"{here}.{name}_slot{end}", x, number) for name, x in zip(names, rows, strict=True)
        )
        tokens = qkv.shape[1]
        seen, new_columns = convolved(part, number, layer, here, qkv, roles.KDA_TAPS, None, silu=True)
        q, k = unit_heads(builder, here, seen, self.heads, self.keys, end)
        v = heads_of(builder, f"{here}.v", seen, 2 * self.wide, self.heads, self.keys, end)
        # A token of padding decays nothing, and nothing of it is taken.
        assert slot.linear_mask is not None
        mask = builder.reshape(f"{here}.mask{end}", slot.linear_mask, (1, tokens, 1))
        beta = builder.repeated("Mul", f"{here}.masked_beta{end}", beta, mask)
        mask = builder.reshape(f"{here}.mask_of_keys{end}", slot.linear_mask, (1, tokens, 1, 1))
        decay = builder.repeated("Mul", f"{here}.masked_decay{end}", decay, mask)
        mixed, new_state = builder.decayed_rule(
            f"{here}.rule{end}", (q, k, v), slot.carried[layer][1], (decay, beta), slot.carried_names[layer][1]
        )
        slot.carried_on[layer] = (new_columns, new_state)
        return mixed
