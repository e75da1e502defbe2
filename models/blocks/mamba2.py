"""State-space layers (Mamba-2): what linear attention is without the delta, with steps that say how much is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .delta_net import heads_of
from .part import GraphPart
from .shards import Shard
from .short_conv import convolved
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Norm; gates, values, B, C and steps; a convolution over values, B and C; the recurrence; gates, and a norm;
    projection; residual add.

    Attributes:
        heads: Of values, of the state, and of steps.
        values: Size of a head.
        groups: Heads of B and C; consecutive heads of values share one.
        keys: Size of a head of B and C.
        taps: Tokens that the convolution is about, and columns of its state.
        epsilon: Of the norm.
        conv_bias: The convolution has a bias.
        in_bias: So has the first projection.
        out_bias: So has the last.
        norm: Whether the values of each group are normalised behind their gates or before; None: they are not.
        scales: What multiplies gates, values, B, C and steps; empty for nothing.
        out_scale: What multiplies the result.
        beside: It reads the rows that attention of the layer, the block before, has normalised.
    """

    heads: int
    values: int
    groups: int
    keys: int
    taps: int
    epsilon: float
    conv_bias: bool = True
    in_bias: bool = False
    out_bias: bool = False
    norm: Literal["behind", "before"] | None = "behind"
    scales: tuple[float, ...] = ()
    out_scale: float = 1.0
    beside: bool = False

    @property
    def inner(self) -> int:
        """Values of all heads."""
        return self.heads * self.values

    @property
    def sections(self) -> tuple[int, ...]:
        """Gates, values, B, C and steps side by side."""
        return self.inner, self.inner, self.groups * self.keys, self.groups * self.keys, self.heads

    @property
    def channels(self) -> int:
        """What the convolution is over."""
        return sum(self.sections[1:4])

    @property
    def parts(self) -> Mapping[str, int]:
        """What the state of its convolution may be split in: nothing."""
        return {}

    @property
    def states(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what a slot hands from run to run."""
        return (1, self.channels, self.taps), (1, self.heads, self.keys, self.values)

    @property
    def unit_norm(self) -> int | None:
        """The length of a norm without a weight of its own, where each group has a part of the weight."""
        return self.inner // self.groups if self.norm is not None and self.groups > 1 else None

    def of(self, shard: Shard) -> Mamba2:
        """The part of one device: its groups, and the heads that share them."""
        return replace(self, groups=len(shard.even(self.groups)), heads=len(shard.even(self.heads)))

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden = config.hidden_size
        if not self.beside:
            yield Weight(roles.ATTENTION_NORM, (hidden,))
        yield Weight(roles.SSM_IN, self.sections, hidden, scales=self.scales)
        if self.in_bias:
            yield Weight(roles.SSM_IN_BIAS, self.sections)
        yield Weight(roles.SSM_TAPS, self.sections[1:4], taps=self.taps)
        if self.conv_bias:
            yield Weight(roles.SSM_TAPS_BIAS, self.sections[1:4])
        for role in (roles.SSM_RATE, roles.SSM_STEP_BIAS, roles.SSM_SKIP):
            yield Weight(role, (self.heads,))
        if self.norm is not None:
            yield Weight(roles.SSM_NORM if self.unit_norm is None else roles.SSM_NORM_FACTORS, (self.inner,))
        yield Weight(roles.SSM_OUT, (hidden,), self.inner, scale=self.out_scale)
        if self.out_bias:
            yield Weight(roles.SSM_OUT_BIAS, (hidden,))

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments and result as `Attention.lower`."""
        builder, mine, here = part.builder, self.of(part.shard), f"layers.{layer}.ssm"
        if self.beside:
            _, normed = part.before[layer]
        else:
            normed = part.norm_of_hidden(f"{here}.norm", x, roles.ATTENTION_NORM, layer)
        in_bias, out_bias = (roles.SSM_IN_BIAS if self.in_bias else None, roles.SSM_OUT_BIAS if self.out_bias else None)
        projected = part.linear(f"{here}.in", normed, roles.SSM_IN, layer, in_bias)
        slots = [mine._mix(part, slot, layer, projected) for slot in range(len(part.slots))]
        rows = part.rows_of_all(f"{here}.slots", slots)
        begin = part.shard.even(self.heads).start * self.values
        mixed = part.whole(
            f"{here}.mix", begin, self.inner, lambda name: mine._gated(part, name, rows, projected, layer)
        )
        if part.kept_row is not None and layer + 1 == part.config.num_layers:
            mixed = builder.last_row(f"{here}.mix_row", mixed, part.kept_row)
            if not self.beside:
                x = builder.last_row(f"{here}.row", x, part.kept_row)
        out = part.whole_hidden(f"{here}.out", lambda name: part.linear(name, mixed, roles.SSM_OUT, layer, out_bias))
        return builder.add(residual, x, out)

    def _mix(self, part: GraphPart, number: int, layer: int, projected: Ref) -> Ref:
        """Convolution and recurrence of a slot, [1, T, heads, V]."""
        builder, slot, here = part.builder, part.slots[number], f"layers.{layer}.ssm"
        end, wide = f"_batch_{number}" if number else "", self.groups * self.keys
        projected = part.rows_of_slot(f"{here}.in_slot{end}", projected, number)
        behind = self.inner + self.channels
        rows = builder.slice(f"{here}.rows{end}", projected, self.inner, behind)
        bias = roles.SSM_TAPS_BIAS if self.conv_bias else None
        seen, new_columns = convolved(part, number, layer, here, rows, roles.SSM_TAPS, bias, silu=True)
        values = heads_of(builder, f"{here}.values", seen, 0, self.heads, self.values, end)
        keys, queries = (
            heads_of(builder, f"{here}.{name}", seen, self.inner + at, self.groups, self.keys, end)
            for name, at in (("keys", 0), ("queries", wide))
        )
        assert slot.linear_mask is not None
        mixed, new_state = builder.delta_rule(
            f"{here}.rule{end}",
            (queries, keys, values),
            slot.carried[layer][1],
            (builder.slice(f"{here}.steps{end}", projected, behind, behind + self.heads),),
            [part.weight(role, layer) for role in (roles.SSM_RATE, roles.SSM_STEP_BIAS, roles.SSM_SKIP)],
            slot.linear_mask,
            slot.carried_names[layer][1],
        )
        slot.carried_on[layer] = (new_columns, new_state)
        return mixed

    def _gated(self, part: GraphPart, name: str, rows: Ref, projected: Ref, layer: int) -> Ref:
        """Values times the function of their gates, and normalised if they are, [B, T, heads * V]."""
        builder, here = part.builder, f"layers.{layer}.ssm"
        last, mixed = self.norm == "behind", builder.reshape(f"{here}.flat", rows, (*rows.shape[:2], self.inner))
        if self.norm == "before":
            mixed = self._normed(part, f"{here}.mix_norm", mixed, layer)
        gates = builder.slice(f"{here}.gates", projected, 0, self.inner)
        mixed = builder.gate_mul(f"{here}.gated" if last else name, mixed, gates, "silu")
        return self._normed(part, name, mixed, layer) if last else mixed

    def _normed(self, part: GraphPart, name: str, mixed: Ref, layer: int) -> Ref:
        """Each group by itself."""
        builder = part.builder
        if self.groups == part.shard.ndevice == 1:
            return builder.rms_norm(name, mixed, part.weight(roles.SSM_NORM, layer), self.epsilon)
        each = self.inner // self.groups
        groups = builder.reshape(f"{name}.groups", mixed, (*mixed.shape[:2], self.groups, each))
        unit = builder.rms_norm(f"{name}.unit", groups, roles.ones(each), self.epsilon)
        flat = builder.reshape(f"{name}.unit_flat", unit, mixed.shape)
        return builder.times(name, flat, part.weight(roles.SSM_NORM_FACTORS, layer))
