"""A short convolution with a gate before it and one behind: a layer that sees a few tokens and keeps no cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .shards import Shard
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv:
    """Norm; two gates and values; the values times the first gate; their convolution; times the second gate;
    projection, and its norm; residual add.

    Attributes:
        channels: Of each of the three.
        taps: Tokens that the convolution is about, and columns of its state.
        bias: Both projections and the convolution have biases.
        out_norm: What the last projection gives is normalised before the residual add.
    """

    channels: int
    taps: int
    bias: bool
    out_norm: bool = False

    @property
    def parts(self) -> Mapping[str, int]:
        """What its state may be split in: nothing."""
        return {}

    @property
    def states(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what a slot hands from run to run."""
        return ((1, self.channels, self.taps),)

    def of(self, shard: Shard) -> ShortConv:
        """The part of one device."""
        return replace(self, channels=len(shard.even(self.channels)))

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, three = config.hidden_size, (self.channels,) * 3
        yield Weight(roles.ATTENTION_NORM, (hidden,))
        yield Weight(roles.CONV_IN, (3 * self.channels,), hidden, sections=three)
        yield Weight(roles.CONV_TAPS, (self.channels,), taps=self.taps)
        yield Weight(roles.CONV_OUT, (hidden,), self.channels)
        if self.bias:
            yield Weight(roles.CONV_IN_BIAS, (3 * self.channels,), sections=three)
            yield Weight(roles.CONV_BIAS, (self.channels,))
            yield Weight(roles.CONV_OUT_BIAS, (hidden,))
        if self.out_norm:
            yield Weight(roles.ATTENTION_OUT_NORM, (hidden,))

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments and result as `Attention.lower`."""
        builder, config, here = part.builder, part.config, f"layers.{layer}.conv"
        own = self.of(part.shard).channels
        normed = part.norm(f"{here}.norm", x, roles.ATTENTION_NORM, layer)
        rows = part.linear(f"{here}.in", normed, roles.CONV_IN, layer, roles.CONV_IN_BIAS if self.bias else None)
        first, second, values = (
            builder.slice(f"{here}.{name}", rows, at * own, (at + 1) * own)
            for at, name in enumerate(("first_gate", "second_gate", "values"))
        )
        gated = builder.mul(f"{here}.gated", first, values)
        seen = [self._convolved(part, slot, layer, gated) for slot in range(len(part.slots))]
        convolved = part.rows_of_all(f"{here}.slots", seen)
        mixed = part.whole(
            f"{here}.mix",
            part.shard.even(self.channels).start,
            self.channels,
            lambda name: builder.mul(name, second, convolved),
        )
        if part.kept_row is not None and layer + 1 == config.num_layers:
            x = builder.last_row(f"{here}.row", x, part.kept_row)
            mixed = builder.last_row(f"{here}.mix_row", mixed, part.kept_row)
        bias = roles.CONV_OUT_BIAS if self.bias else None
        out = part.whole_hidden(f"{here}.out", lambda name: part.linear(name, mixed, roles.CONV_OUT, layer, bias))
        if self.out_norm:
            out = part.norm(f"{here}.out_norm", out, roles.ATTENTION_OUT_NORM, layer)
        return builder.add(residual, x, out)

    def _convolved(self, part: GraphPart, number: int, layer: int, gated: Ref) -> Ref:
        """The convolution of a slot, [1, T, channels]."""
        here, end = f"layers.{layer}.conv", f"_batch_{number}" if number else ""
        gated = part.rows_of_slot(f"{here}.gated_slot{end}", gated, number)
        bias = roles.CONV_BIAS if self.bias else None
        seen, new = convolved(part, number, layer, here, gated, roles.CONV_TAPS, bias, silu=False)
        part.slots[number].carried_on[layer] = (new,)
        return seen


def convolved(
    part: GraphPart, number: int, layer: int, here: str, x: Ref, taps: roles.Role, bias: roles.Role | None, silu: bool
) -> tuple[Ref, tuple[Ref, ...]]:
    """Returns what a convolution makes of rows of a slot, [1, T, channels], and its states for the next run."""
    slot, several, end = part.slots[number], len(part.slots) > 1, f"_batch_{number}" if number else ""
    columns, names = slot.carried[layer][0], slot.carried_names[layer][0]
    y, new = part.builder.causal_conv(
        f"{here}.conv{end}",
        x,
        columns,
        part.weight(taps, layer),
        slot.current,
        [f"{here}.shifted{end}"] if several else names,
        bias=None if bias is None else part.weight(bias, layer),
        silu=silu,
    )
    if several:  # a slot that takes no part has a token all the same, which its mask hides
        assert slot.linear_mask is not None
        new = (part.builder.where(names[0], slot.linear_mask, new[0], columns),)
    return y, new
