"""The inputs of a graph, in the order of the family's contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tcim_lite.hmm import Role

from ..blocks import Attention, Deepstack, LatentAttention, ShortConv
from ..blocks.nets import Net, nets_of
from ..blocks.part import LowRankInputs
from ..blocks.shards import Shard
from ..contract import Contract, Port
from ..graphs.builder import GraphBuilder
from ..graphs.slot import Slot
from ..graphs.values import Ref
from ..model_config import ModelConfig
from .carried import CarriedPorts
from .graph_specs import GraphSpec
from .lora import LoraWeight

_MASK_ALIGNMENT = 16


def residual_name(number: int) -> str:
    """Returns the name of the hidden states after block `number` of the model, which end in its residual add."""
    return f"add_{number}"


def mask_ports(config: ModelConfig, spec: GraphSpec) -> tuple[Port, ...]:
    """Returns the mask inputs of a graph: for layers with a window and for the others, or for the former alone."""
    contract = config.family.contract
    if spec.masks:
        return contract.masks
    return () if contract.local_mask is None else (contract.local_mask,)


def mask_columns(config: ModelConfig, tokens: int, context: int) -> tuple[int, int]:
    """Returns how many cache rows the local and the global mask are about.

    A token sees W of the cache; what the tokens of a run see together is rounded up as the vendor's exporter does.
    """
    window = config.mask_window
    local = context if window is None else min(-(-(tokens + window - 1) // _MASK_ALIGNMENT) * _MASK_ALIGNMENT, context)
    return local, context


def cached_layers(config: ModelConfig, layers: range) -> dict[int, Attention | LatentAttention]:
    """Returns the attention of layers with caches."""
    return {
        layer: block
        for layer in layers
        for block in config.blocks(layer)
        if isinstance(block, Attention | LatentAttention) and block.has_cache
    }


def has_linear_attention(config: ModelConfig) -> bool:
    """Whether layers have linear attention, or one as state-space layers have it.

    Its graphs all take a mask. Those of short convolutions go by the lengths, and take it for a slot of several alone.
    """
    return any(not isinstance(net, ShortConv) for net in nets_of(config).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInputs:
    """Adds them to the graph of a device.

    Attributes:
        builder: Of the graph.
        config: Of the model.
        spec: Of the graph.
        context: Rows of the caches.
        shard: What the device computes.
        layers: Layers of the model that the graph runs.
    """

    builder: GraphBuilder
    config: ModelConfig
    spec: GraphSpec
    context: int
    shard: Shard
    layers: range

    @property
    def contract(self) -> Contract:
        """Of the family."""
        return self.config.family.contract

    def hidden(self, blocks_before: int) -> Ref:
        """Adds what the first layer reads: embeddings, or in later stages what the stage before gives."""
        rows = (self.spec.batch, self.spec.tokens)
        if self.layers.start:
            shape = (*rows, self.config.hidden_size)
            return self.builder.input(residual_name(blocks_before - 1), shape, role=Role("hidden"))
        width = self.config.source_size or self.config.table_shape[1]
        return self._add(self.builder.input, self.contract.shared[0], (*rows, width))

    def of_rows(self) -> dict[str, Ref]:
        """Adds what else the graph takes of each row, by role."""
        sizes = {"head_mask": (self.config.heads, 1), "bypass_embeddings": (self.config.hidden_size,)}
        rows = (self.spec.batch, self.spec.tokens)
        return {
            port.role: self._add(self.builder.input, port, (*rows, *sizes.get(port.role, (1,))))
            for port in self.contract.shared[1:]
        }

    def head_number(self) -> Ref | None:
        """Adds the number of the head that makes the logits, of a family with several."""
        port = self.contract.head_number
        return None if port is None else self._add(self.builder.input, port, (1,), 0, dtype="int32")

    def slot(self, slot: int) -> Slot:
        """Adds what each batch slot has of its own."""
        add, contract, tokens = self.builder.input, self.contract, self.spec.tokens
        axis_shape = (tokens,) if len(contract.axes) > 1 else (3, 1, tokens)
        axes = tuple(self._add(add, port, axis_shape, slot, dtype="int32") for port in contract.axes)
        lengths = {port.role: self._add(add, port, (1,), slot, dtype="int32") for port in contract.per_slot}
        condition = None
        if self.config.condition_size is not None:
            assert contract.condition is not None
            condition = self._add(add, contract.condition, (1, self.config.condition_size), slot)
        positions = None
        if self.spec.position_ids:
            positions = self._add(add, contract.positions, (1, tokens), slot, dtype="int32")
        masks = self._masks(slot)
        layer_inputs = None
        if self.config.layer_inputs:
            assert contract.layer_inputs is not None
            by_layer = (1, tokens, self.config.num_layers, self.config.layer_inputs)
            layer_inputs = self._add(add, contract.layer_inputs, by_layer, slot)
        deepstack = {}
        if contract.deepstack is not None:
            shape = (self.spec.batch, tokens, self.config.hidden_size)
            stacked = [layer for layer in self.layers if Deepstack() in self.config.blocks(layer)]
            deepstack = {layer: self._add(add, contract.deepstack, shape, slot, layer) for layer in stacked}
        linear_mask = None
        several = self.spec.batch > 1 and nets_of(self.config)
        if contract.linear_mask is not None and (several or has_linear_attention(self.config)):
            linear_mask = self._add(add, contract.linear_mask, (1, tokens), slot)
        caches = dict(self._caches(slot))
        carried = self.carried(slot)
        return Slot(
            valid=lengths["valid_length"],
            current=lengths["current_length"],
            positions=positions,
            masks=masks,
            condition=condition,
            layer_inputs=layer_inputs,
            axes=axes,
            deepstack=deepstack,
            keys=tuple(ref for (role, _), ref in caches.items() if role in ("k_cache", "latent_cache")),
            values=tuple(ref for (role, _), ref in caches.items() if role == "v_cache"),
            linear_mask=linear_mask,
            carried=carried.add(self.builder),
            carried_names=carried.names(),
        )

    def lora(self, weights: Iterable[LoraWeight]) -> dict[str, LowRankInputs]:
        """Adds what a LoRA adds to weights of the graph's layers, behind all else; by the name of the weight."""
        made = {}
        for weight in weights:
            if weight.spec.layer in self.layers:
                ports = zip(weight.names(), weight.shapes, strict=True)
                down, up = (self.builder.input(name, shape) for name, shape in ports)
                made[weight.spec.name] = LowRankInputs(down=down, up=up, sections=weight.spec.sections)
        return made

    def carried(self, slot: int) -> CarriedPorts:
        """Returns the ports of what linear attention hands from run to run."""
        before = len(self._nets(range(self.layers.start)))
        return CarriedPorts(self.contract, self._nets(self.layers), self.spec, slot, before)

    def _masks(self, slot: int) -> tuple[Ref | None, Ref | None]:
        add, contract, tokens = self.builder.input, self.contract, self.spec.tokens
        masks: list[Ref | None] = [None, None]
        if ports := mask_ports(self.config, self.spec):
            columns = mask_columns(self.config, tokens, self.context)
            for index, port in enumerate(ports):
                masks[index] = self._add(add, port, (1, 1, tokens, columns[index]), slot)
        if contract.row_mask is not None:
            masks[1] = self._add(add, contract.row_mask, (1, 1, 1, self.context), slot)
        if contract.seen_mask is not None:
            masks[1] = self._add(add, contract.seen_mask, (1, 1, tokens, self.context), slot)
        if contract.extra_mask is not None:
            ahead = () if contract.flat_mask else (1, 1)
            masks[0] = masks[1] = self._add(add, contract.extra_mask, (*ahead, tokens, self.context), slot)
        return masks[0], masks[1]

    def _caches(self, slot: int) -> Iterator[tuple[tuple[str, int], Ref]]:
        """Yields keys and values by role and layer."""
        cached = cached_layers(self.config, self.layers)
        # Names count layers with a cache and those with a state apart, where a model has both.
        before = len(cached_layers(self.config, range(self.layers.start)))
        number = {layer: index for index, layer in enumerate(cached, before)}
        # The vendor's pipeline splitter interleaves keys and values; its exporters put all keys first.
        pairs = [(port, layer) for port in self.contract.per_layer for layer in cached]
        if self.spec.layers is not None:
            pairs = [(port, layer) for layer in cached for port in self.contract.per_layer]
        for port, layer in pairs:
            shape = cached[layer].cache_shape(self.config, self.shard.kv_heads, self.context)
            yield (port.role, layer), self._add(self.builder.state, port, shape, slot, layer, number[layer])

    def _nets(self, layers: range) -> dict[int, Net]:
        """What the device has of layers with states."""
        return {layer: net.of(self.shard) for layer, net in nets_of(self.config, layers).items()}

    @staticmethod
    def _add(
        add: Callable[..., Ref],
        port: Port,
        shape: tuple[int, ...],
        slot: int | None = None,
        layer: int | None = None,
        number: int | None = None,
        **options: str,
    ) -> Ref:
        """`number` is what names count layers by, where that is not the model's."""
        name, alias = port.names(slot, layer if number is None else number)
        return add(name, shape, role=Role(port.role, layer, slot), aliases=[alias] if port.alias else [], **options)
