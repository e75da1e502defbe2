"""The graph that one device runs, while blocks are lowered into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..graphs.builder import GraphBuilder
from ..graphs.slot import Slot
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from ..weights.roles import NORM_BIASES, Role
from .shards import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRankInputs:
    """What is added to a Linear [N, K]: x times `down` [1, K, R] times `up` [1, R, N].

    Attributes:
        down: An input of the graph.
        up: The same; its columns are as the rows of the weight.
        sections: Of the weight's spec.
    """

    down: Ref
    up: Ref
    sections: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """A device's part of a graph, and what blocks need to add their ops to it.

    Attributes:
        builder: Collects the ops.
        config: Of the model.
        shard: What this device computes; what the others compute is gathered.
        slots: Batch slots with their lengths and caches.
        layers: Layers of the model that this graph runs.
        cached_layers: Those of them with caches.
        tables: Rows of cos and sin of the tokens, [B, T, head_dim / 2]; None where tables go by one position.
        caches: Keys and values of every slot, by layer, as far as layers were lowered.
        before: What attention of a layer read, as far as its residual needs it, and that normalised, likewise.
        streams: What `AltUpPredict` of a layer guesses, [1, T, streams * H], as far as layers were lowered.
        layer_inputs: What `PerLayerInput` adds, of all layers side by side, [1, T, layers * size]; None without it.
        condition: What norms of hidden states are made of, [1, 1, size]; None where they have weights of their own.
        kept_row: Only row `kept_row` - 1 is needed after the model's last attention; None for every row.
        lora: What a LoRA adds to Linears, by the name of the whole weight.
    """

    builder: GraphBuilder
    config: ModelConfig
    shard: Shard
    slots: Sequence[Slot]
    layers: range
    cached_layers: Sequence[int]
    kept_row: Ref | None
    tables: tuple[Ref, Ref] | None = None
    caches: dict[int, tuple[list[Ref], list[Ref]]] = field(default_factory=dict)
    before: dict[int, tuple[Ref, Ref]] = field(default_factory=dict)
    streams: dict[int, Ref] = field(default_factory=dict)
    layer_inputs: Ref | None = None
    condition: Ref | None = None
    lora: Mapping[str, LowRankInputs] = field(default_factory=dict)

    def weight(self, role: Role, layer: int | None = None) -> str:
        """Returns the name of this device's part of a weight."""
        return self.shard.weight_name(role, layer)

    def norm(self, name: str, x: Ref, role: Role, layer: int | None = None) -> Ref:
        """RMS norm over the last axis."""
        return self.builder.rms_norm(name, x, self.weight(role, layer), self.config.rms_norm_eps)

    def norm_of_hidden(self, name: str, x: Ref, role: Role, layer: int | None = None) -> Ref:
        """Norm of hidden states between blocks."""
        epsilon = self.config.rms_norm_eps * self.config.residual_scale**2
        if self.config.centred:
            bias = self.weight(NORM_BIASES[role], layer) if self.config.norm_bias else None
            weight = self.weight(role, layer) if self.config.norm_weight else None
            return self.builder.layer_norm(name, x, weight, bias, epsilon)
        weight = self.weight(role, layer) if self.config.norm_weight else roles.ones(x.shape[-1])
        return self.builder.rms_norm(name, x, weight, epsilon)

    def normed_before(self, name: str, x: Ref, layer: int) -> Ref:
        """What attention of the layer has normalised, as many rows of it as `x` has."""
        _, normed = self.before[layer]
        if normed.shape == x.shape:
            return normed
        assert self.kept_row is not None  # only one row is needed from here on
        return self.builder.last_row(name, normed, self.kept_row)

    def linear(self, name: str, x: Ref, role: Role, layer: int | None = None, bias: Role | None = None) -> Ref:
        """This device's outputs of a Linear; with a bias if one is named."""
        weight, vector = self.weight(role, layer), None if bias is None else self.weight(bias, layer)
        if (added := self.lora.get(role.name_of(layer))) is None:
            return self.builder.linear(name, x, weight, vector)
        base = self.builder.linear(f"{name}.base", x, weight, vector)
        down = self.builder.mat_mul(f"{name}.lora_down", x, added.down)
        return self.builder.add(name, base, self.builder.mat_mul(f"{name}.lora", down, self._own(name, role, added)))

    def _own(self, name: str, role: Role, added: LowRankInputs) -> Ref:
        """The columns of `up` for this device's outputs."""
        rows = None if self.shard.ndevice == 1 else self.shard.rows(role, added.sections)
        if rows is None:
            return added.up
        pieces = [
            self.builder.part(f"{name}.lora_up{index}", added.up, 2, part.start, part.stop)
            for index, part in enumerate(rows)
        ]
        return pieces[0] if len(pieces) == 1 else self.builder.concat(f"{name}.lora_up", pieces, 2)

    def rows_of_slot(self, name: str, x: Ref, number: int) -> Ref:
        """Rows of one slot, [1, ...], of those of all slots."""
        return x if len(self.slots) == 1 else self.builder.part(name, x, 0, number, number + 1)

    def rows_of_all(self, name: str, slots: Sequence[Ref]) -> Ref:
        """Rows of all slots, in order, of those of each."""
        return slots[0] if len(slots) == 1 else self.builder.concat(name, slots, 0)

    def whole(self, name: str, begin: int, width: int, make: Callable[[str], Ref]) -> Ref:
        """Returns all `width` columns of what `make` computes this device's columns of, from `begin` on."""
        if self.shard.ndevice == 1:
            return make(name)
        return self.builder.all_gather(name, make(f"{name}.part"), begin, width)

    def whole_hidden(self, name: str, make: Callable[[str], Ref]) -> Ref:
        """The same of hidden states."""
        return self.whole(name, self.shard.hidden.start, self.config.hidden_size, make)
