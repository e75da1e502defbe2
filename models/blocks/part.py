"""The graph that one device runs, while blocks are lowered into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..graphs.builder import GraphBuilder
from ..graphs.slot import Slot
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights.roles import Role
from .shards import Shard


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
        layer_inputs: What `PerLayerInput` adds, of all layers side by side, [1, T, layers * size]; None without it.
        condition: What norms of hidden states are made of, [1, 1, size]; None where they have weights of their own.
        kept_row: Only row `kept_row` - 1 is needed after the model's last attention; None for every row.
        lora: What a LoRA adds to Linears, by the name of the weight: x times [1, K, R] times [1, R, N].
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
    layer_inputs: Ref | None = None
    condition: Ref | None = None
    lora: Mapping[str, tuple[Ref, Ref]] = field(default_factory=dict)

    def weight(self, role: Role, layer: int | None = None) -> str:
        """Returns the name of this device's part of a weight."""
        return self.shard.weight_name(role, layer)

    def norm(self, name: str, x: Ref, role: Role, layer: int | None = None) -> Ref:
        """RMS norm over the last axis."""
        return self.builder.rms_norm(name, x, self.weight(role, layer), self.config.rms_norm_eps)

    def norm_of_hidden(self, name: str, x: Ref, role: Role, layer: int | None = None) -> Ref:
        """RMS norm of hidden states between blocks."""
        epsilon = self.config.rms_norm_eps * self.config.residual_scale**2
        return self.builder.rms_norm(name, x, self.weight(role, layer), epsilon)

    def linear(self, name: str, x: Ref, role: Role, layer: int | None = None, bias: Role | None = None) -> Ref:
        """This device's outputs of a Linear; with a bias if one is named."""
        weight, vector = self.weight(role, layer), None if bias is None else self.weight(bias, layer)
        if weight not in self.lora:
            return self.builder.linear(name, x, weight, vector)
        down, up = self.lora[weight]
        base = self.builder.linear(f"{name}.base", x, weight, vector)
        added = self.builder.mat_mul(f"{name}.lora", self.builder.mat_mul(f"{name}.lora_down", x, down), up)
        return self.builder.add(name, base, added)

    def whole(self, name: str, begin: int, width: int, make: Callable[[str], Ref]) -> Ref:
        """Returns all `width` columns of what `make` computes this device's columns of, from `begin` on."""
        if self.shard.ndevice == 1:
            return make(name)
        return self.builder.all_gather(name, make(f"{name}.part"), begin, width)

    def whole_hidden(self, name: str, make: Callable[[str], Ref]) -> Ref:
        """The same of hidden states."""
        return self.whole(name, self.shard.hidden.start, self.config.hidden_size, make)
