"""State-space layers (Mamba 1): each channel has a state of its own, whose elements decay each at their own rate.

The recurrence is the op of linear attention with a head for each channel, which has one value: the decay of each key of
it is a step times a rate, the value times the step is what the state takes, and B and C are the key and the query that
all heads share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .shards import Shard
from .short_conv import convolved
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """Norm; values and gates; a convolution over values; of them steps, B and C; the recurrence; gates; projection;
    residual add.

    Attributes:
        inner: Channels, of values and of the state.
        keys: Elements of the state of a channel, of B and of C.
        rank: Numbers that steps are made of.
        taps: Tokens that the convolution is about, and columns of its state.
        conv_bias: The convolution has a bias.
        bias: The first projection and the last have biases.
        norms: These numbers, B and C are normalised, by norms with a weight or without; None: they are not.
        epsilon: Of these norms.
    """

    inner: int
    keys: int
    rank: int
    taps: int
    conv_bias: bool = True
    bias: bool = False
    norms: Literal["weights", "unit"] | None = None
    epsilon: float = 1e-6

    @property
    def parts(self) -> Mapping[str, int]:
        """What the state of its convolution may be split in: nothing."""
        return {}

    @property
    def states(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what a slot hands from run to run."""
        return (1, self.inner, self.taps), (1, self.inner, self.keys, 1)

    @property
    def unit_norms(self) -> set[int]:
        """Lengths of norms without a weight."""
        return {self.rank, self.keys} if self.norms == "unit" else set()

    def of(self, shard: Shard) -> Mamba:
        """All of it: no device has a part."""
        return self

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, inner = config.hidden_size, self.inner
        yield Weight(roles.ATTENTION_NORM, (hidden,))
        yield Weight(roles.SSM_IN, (inner, inner), hidden)
        if self.bias:
            yield Weight(roles.SSM_IN_BIAS, (inner, inner))
        yield Weight(roles.SSM_TAPS, (inner,), taps=self.taps)
        if self.conv_bias:
            yield Weight(roles.SSM_TAPS_BIAS, (inner,))
        yield Weight(roles.SSM_SELECT, (self.rank, self.keys, self.keys), inner)
        if self.norms == "weights":
            yield Weight(roles.SSM_RANK_NORM, (self.rank,))
            yield Weight(roles.SSM_KEY_NORM, (self.keys,))
            yield Weight(roles.SSM_QUERY_NORM, (self.keys,))
        yield Weight(roles.SSM_STEPS, (inner,), self.rank)
        yield Weight(roles.SSM_STEPS_BIAS, (inner,))
        yield Weight(roles.SSM_RATES, (self.keys,), sections=(inner,))
        yield Weight(roles.SSM_SKIPS, (inner,))
        yield Weight(roles.SSM_OUT, (hidden,), inner)
        if self.bias:
            yield Weight(roles.SSM_OUT_BIAS, (hidden,))

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments and result as `Attention.lower`."""
        builder, here, inner = part.builder, f"layers.{layer}.ssm", self.inner
        normed = part.norm_of_hidden(f"{here}.norm", x, roles.ATTENTION_NORM, layer)
        projected = part.linear(f"{here}.in", normed, roles.SSM_IN, layer, roles.SSM_IN_BIAS if self.bias else None)
        seen = part.rows_of_all(f"{here}.seen", [self._seen(part, n, layer, projected) for n in range(x.shape[0])])
        steps, keys, queries = self._selected(part, here, seen, layer)
        slots = [self._mix(part, n, layer, (seen, steps, keys, queries)) for n in range(x.shape[0])]
        mixed = builder.reshape(f"{here}.flat", part.rows_of_all(f"{here}.slots", slots), seen.shape)
        skipped = builder.times(f"{here}.skip", seen, part.weight(roles.SSM_SKIPS, layer))
        both = builder.add(f"{here}.both", mixed, skipped)
        gates = builder.slice(f"{here}.gates", projected, inner, 2 * inner)
        mixed = builder.gate_mul(f"{here}.mix", both, gates, "silu")
        if part.kept_row is not None and layer + 1 == part.config.num_layers:
            mixed = builder.last_row(f"{here}.mix_row", mixed, part.kept_row)
            x = builder.last_row(f"{here}.row", x, part.kept_row)
        out = part.linear(f"{here}.out", mixed, roles.SSM_OUT, layer, roles.SSM_OUT_BIAS if self.bias else None)
        return builder.add(residual, x, out)

    def _seen(self, part: GraphPart, number: int, layer: int, projected: Ref) -> Ref:
        """The values of a slot behind the convolution, [1, T, inner]."""
        here, end = f"layers.{layer}.ssm", f"_batch_{number}" if number else ""
        values = part.builder.slice(
            f"{here}.rows{end}", part.rows_of_slot(f"{here}_slot_{number}", projected, number), 0, self.inner
        )
        bias = roles.SSM_TAPS_BIAS if self.conv_bias else None
        seen, new_columns = convolved(part, number, layer, here, values, roles.SSM_TAPS, bias, silu=True)
        part.slots[number].carried_on[layer] = (new_columns,)
        return seen

    def _selected(self, part: GraphPart, here: str, seen: Ref, layer: int) -> tuple[Ref, Ref, Ref]:
        """Steps [B, T, inner], and B and C, [B, T, keys]."""
        builder, ends = part.builder, (0, self.rank, self.rank + self.keys, self.rank + 2 * self.keys)
        flat = part.linear(f"{here}.select", seen, roles.SSM_SELECT, layer)
        found = []
        for index, (name, norm) in enumerate(
            (("rank", roles.SSM_RANK_NORM), ("key", roles.SSM_KEY_NORM), ("query", roles.SSM_QUERY_NORM))
        ):
            rows = builder.part(f"{here}.{name}", flat, 2, ends[index], ends[index + 1])
            if self.norms is not None:
                weight = part.weight(norm, layer) if self.norms == "weights" else roles.ones(rows.shape[2])
                rows = builder.rms_norm(f"{here}.{name}_norm", rows, weight, self.epsilon)
            found.append(rows)
        raw = part.linear(f"{here}.raw_steps", found[0], roles.SSM_STEPS, layer, roles.SSM_STEPS_BIAS)
        return builder.function("Softplus", f"{here}.steps", raw), found[1], found[2]

    def _mix(self, part: GraphPart, number: int, layer: int, rows: tuple[Ref, Ref, Ref, Ref]) -> Ref:
        """The recurrence of a slot, [1, T, inner, 1], of its values, steps, B and C."""
        builder, slot, end = part.builder, part.slots[number], f"_batch_{number}" if number else ""
        here = f"layers.{layer}.ssm"
        names = ("values", "step", "keys", "queries")
        seen, steps, keys, queries = (
            part.rows_of_slot(f"{here}.{name}_slot_{number}", x, number) for name, x in zip(names, rows, strict=True)
        )
        assert slot.linear_mask is not None
        tokens, inner = seen.shape[1:]
        # A token of padding has a step of 0, which leaves the state as it is.
        mask = builder.reshape(f"{here}.mask{end}", slot.linear_mask, (1, tokens, 1))
        steps = builder.repeated("Mul", f"{here}.masked_steps{end}", steps, mask)
        values = builder.reshape(
            f"{here}.values{end}", builder.mul(f"{here}.taken{end}", steps, seen), (1, tokens, inner, 1)
        )
        by_channel = builder.reshape(f"{here}.step_of_channels{end}", steps, (1, tokens, inner, 1))
        rates = builder.weight(part.weight(roles.SSM_RATES, layer))
        decays = builder.repeated("Mul", f"{here}.decays{end}", by_channel, rates)
        shape = (1, tokens, 1, self.keys)
        mixed, new_state = builder.decayed_rule(
            f"{here}.rule{end}",
            (
                builder.reshape(f"{here}.queries_of_all{end}", queries, shape),
                builder.reshape(f"{here}.keys_of_all{end}", keys, shape),
                values,
            ),
            slot.carried[layer][1],
            (decays,),
            slot.carried_names[layer][1],
        )
        slot.carried_on[layer] = (*slot.carried_on[layer], new_state)
        return mixed
