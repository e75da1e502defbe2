"""The graphs of a model: inputs as the family's contract orders them, then blocks, then the head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tcim_lite.hmm import WHOLE, Graph, Role, Split, WeightEntry

from ..blocks import Attention, Deepstack, DeltaNet
from ..blocks.head import lower_head, lower_input, lower_speaker
from ..blocks.mtp import POST_NORM_HIDDEN
from ..blocks.part import GraphPart
from ..blocks.per_layer import lower_layer_inputs
from ..blocks.shards import Shard
from ..blocks.tables import lower_tables
from ..common.profiles import Profile
from ..contract import Port
from ..graphs.builder import GraphBuilder
from ..graphs.slot import Slot
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .carried import CarriedPorts, is_carried_role
from .graph_specs import GraphSpec

_MASK_ALIGNMENT = 16
HIDDEN_STATES = "hidden_states"  # what graphs without a head return, or those of a layer, beside the logits


def residual_name(number: int) -> str:
    """Returns the name of the hidden states after block `number` of the model, which end in its residual add."""
    return f"add_{number}"


def build_graph(
    config: ModelConfig,
    profile: Profile,
    weights: Sequence[WeightEntry],
    spec: GraphSpec,
    context_length: int,
    shard: Shard,
) -> Graph:
    """Returns the graph `spec` describes as one device runs it, its caches [1, Hkv, C, D] with its own heads only."""
    assert spec.batch == 1 or spec.tokens == 1
    assert spec.ndevice == shard.ndevice
    contract = config.family.contract
    layers = spec.layers or range(config.num_layers)
    builder = GraphBuilder(spec.name, profile.tensor_dtype, weights, profile.activations)
    first_block = sum(len(config.blocks(layer)) for layer in range(layers.start))
    names = [residual_name(first_block + at) for at in range(sum(len(config.blocks(layer)) for layer in layers))]
    if not spec.has_norm and layers.stop == config.num_layers:
        names[-1] = HIDDEN_STATES
    residuals = iter(names)
    embeddings, *others = contract.shared
    rows = (spec.batch, spec.tokens)
    if layers.start:
        x = builder.input(residual_name(first_block - 1), (*rows, config.hidden_size), role=Role("hidden"))
    else:
        x = _add_port(builder.input, embeddings, (*rows, config.source_size or config.table_shape[1]))
    given: dict[str, Ref] = {
        port.role: _add_port(builder.input, port, (*rows, *_of_row(config, port))) for port in others
    }
    slots = [_slot(builder, config, slot, layers, spec, context_length, shard) for slot in range(spec.batch)]
    number = None
    if contract.head_number is not None:
        number = _add_port(builder.input, contract.head_number, (1,), 0, dtype="int32")
    # Of one token, that token is the live row.
    live_rows = slots[0].current if spec.tokens > 1 else None
    part = GraphPart(
        builder=builder,
        config=config,
        shard=shard,
        slots=slots,
        layers=layers,
        cached_layers=list(_cached(config, layers)),
        kept_row=None if spec.all_logits or config.speaker_size else live_rows,
        tables=lower_tables(builder, slots) if contract.axes else None,
    )
    kept = None
    if config.hidden_after == 0:
        kept = x if part.kept_row is None else builder.last_row(f"{HIDDEN_STATES}.row", x, part.kept_row)
        kept = builder.reshape(HIDDEN_STATES, kept, kept.shape)
    if not layers.start:
        x = lower_input(part, x, given)
    if config.layer_inputs:
        (lane,) = slots
        assert lane.layer_inputs is not None
        part = replace(part, layer_inputs=lower_layer_inputs(part, x, lane.layer_inputs))
    for layer in layers:
        for block in config.blocks(layer):
            x = block.lower(part, x, layer, next(residuals))
        if layer + 1 == config.hidden_after and spec.hidden_states is None:
            kept = x = builder.reshape(HIDDEN_STATES, x, x.shape)
    if layers.stop < config.num_layers:
        return builder.build({x: Role("hidden")} | _handed_on(builder, config, spec, shard, slots), live_rows=live_rows)
    hidden_name = contract.hidden if spec.mtp is None else POST_NORM_HIDDEN
    if spec.hidden_states is not None:
        hidden_name = HIDDEN_STATES
    if config.speaker_size:
        hidden_name = ""
    hidden = part.norm_of_hidden(hidden_name or "final_norm", x, roles.FINAL_NORM) if spec.has_norm else x
    outputs: dict[Ref, Role | None] = {hidden: Role("hidden")}
    if spec.hidden_states is None:
        read = hidden
        if config.speaker_size and live_rows is not None and not spec.all_logits:
            read = builder.last_row("final_row", hidden, live_rows)
        logits = lower_head(part, read, number, given.get("head_mask"))
        outputs = {logits: Role("logits")}
    outputs |= _handed_on(builder, config, spec, shard, slots)
    if config.speaker_size:
        outputs[lower_speaker(part, hidden)] = Role("hidden")
    elif hidden_name:
        outputs[hidden] = Role("hidden")
    if kept is not None:
        outputs[kept] = None
    if spec.argmax:
        outputs |= dict(zip(builder.largest("token", logits), (Role("token_id"), Role("token_logit")), strict=True))
    # What mixes rows of the input computes them all.
    return builder.build(outputs, live_rows=None if config.source_size is not None else live_rows)


def _handed_on(
    builder: GraphBuilder, config: ModelConfig, spec: GraphSpec, shard: Shard, slots: Sequence[Slot]
) -> dict[Ref, Role]:
    """What linear attention hands to the next run, of all slots."""
    outputs: dict[Ref, Role] = {}
    for slot, lane in enumerate(slots):
        outputs |= _carried_ports(config, spec, shard, slot).outputs(builder, lane.carried_on)
    return outputs


def _carried_ports(config: ModelConfig, spec: GraphSpec, shard: Shard, slot: int) -> CarriedPorts:
    layers = spec.layers or range(config.num_layers)
    before = len(_nets(config, range(layers.start), shard))
    return CarriedPorts(config.family.contract, _nets(config, layers, shard), spec, slot, before)


def _cached(config: ModelConfig, layers: range) -> dict[int, Attention]:
    """The attention of layers with caches."""
    return {
        layer: block
        for layer in layers
        for block in config.blocks(layer)
        if isinstance(block, Attention) and block.has_cache
    }


def mask_ports(config: ModelConfig, spec: GraphSpec) -> tuple[Port, ...]:
    """Returns the mask inputs of a graph: for layers with a window and for the others, or for the former alone."""
    contract = config.family.contract
    if spec.masks:
        return contract.masks
    return () if contract.local_mask is None else (contract.local_mask,)


def _of_row(config: ModelConfig, port: Port) -> tuple[int, ...]:
    """What a graph takes of each row of its first input."""
    return {"head_mask": (config.heads, 1), "bypass_embeddings": (config.hidden_size,)}.get(port.role, (1,))


def _nets(config: ModelConfig, layers: range, shard: Shard) -> dict[int, DeltaNet]:
    """What a device has of layers with linear attention."""
    return {layer: block.of(shard) for layer in layers for block in config.blocks(layer) if isinstance(block, DeltaNet)}


def mask_columns(config: ModelConfig, tokens: int, context: int) -> tuple[int, int]:
    """Returns how many cache rows the local and the global mask are about.

    A token sees W of the cache; what the tokens of a run see together is rounded up as the vendor's exporter does.
    """
    window = config.mask_window
    local = context if window is None else min(-(-(tokens + window - 1) // _MASK_ALIGNMENT) * _MASK_ALIGNMENT, context)
    return local, context


def split_of(part: Graph) -> Split:
    """Returns how the parts of a graph share its inputs and outputs: what has heads is cut by them, the rest whole."""

    def axis(id_: int) -> int:
        value = part.values[id_]
        carried = value.role is not None and is_carried_role(value.role.name)
        return 1 if value.kind == "state" or carried else WHOLE

    return Split([axis(id_) for id_ in part.inputs], [axis(id_) for id_ in part.outputs])


def _add_port(
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


def _slot(
    builder: GraphBuilder,
    config: ModelConfig,
    slot: int,
    layers: range,
    spec: GraphSpec,
    context: int,
    shard: Shard,
) -> Slot:
    """Adds the inputs of a batch slot."""
    contract = config.family.contract
    refs: dict[tuple[str, int | None], Ref] = {}
    axis_shape = (spec.tokens,) if len(contract.axes) > 1 else (3, 1, spec.tokens)
    axes = tuple(_add_port(builder.input, port, axis_shape, slot, dtype="int32") for port in contract.axes)
    for port in contract.per_slot:
        refs[port.role, None] = _add_port(builder.input, port, (1,), slot, dtype="int32")
    positions = None
    if spec.position_ids:
        positions = _add_port(builder.input, contract.positions, (1, spec.tokens), slot, dtype="int32")
    masks: list[Ref | None] = [None, None]
    columns = mask_columns(config, spec.tokens, context) if (ports := mask_ports(config, spec)) else ()
    for index, port in enumerate(ports):
        masks[index] = _add_port(builder.input, port, (1, 1, spec.tokens, columns[index]), slot)
    if contract.row_mask is not None:
        masks[1] = _add_port(builder.input, contract.row_mask, (1, 1, 1, context), slot)
    if contract.extra_mask is not None:
        ahead = () if contract.flat_mask else (1, 1)
        extra = _add_port(builder.input, contract.extra_mask, (*ahead, spec.tokens, context), slot)
        masks[0] = masks[1] = extra
    layer_inputs = None
    if config.layer_inputs:
        assert contract.layer_inputs is not None
        by_layer = (1, spec.tokens, config.num_layers, config.layer_inputs)
        layer_inputs = _add_port(builder.input, contract.layer_inputs, by_layer, slot)
    deepstack = {}
    if contract.deepstack is not None:
        shape = (spec.batch, spec.tokens, config.hidden_size)
        stacked = [layer for layer in layers if Deepstack() in config.blocks(layer)]
        deepstack = {layer: _add_port(builder.input, contract.deepstack, shape, slot, layer) for layer in stacked}
    linear_mask = None
    if contract.linear_mask is not None:
        linear_mask = _add_port(builder.input, contract.linear_mask, (1, spec.tokens), slot)
    cached = _cached(config, layers)
    # Names count layers with a cache and those with a state apart, where a model has both.
    number = {layer: index for index, layer in enumerate(cached, len(_cached(config, range(layers.start))))}
    # The vendor's pipeline splitter interleaves keys and values; its exporters put all keys first.
    pairs = [(port, layer) for port in contract.per_layer for layer in cached]
    if spec.layers is not None:
        pairs = [(port, layer) for layer in cached for port in contract.per_layer]
    for port, layer in pairs:
        cache_shape = cached[layer].cache_shape(config, shard.kv_heads, context)
        refs[port.role, layer] = _add_port(builder.state, port, cache_shape, slot, layer, number[layer])
    carried = _carried_ports(config, spec, shard, slot)
    return Slot(
        valid=refs["valid_length", None],
        current=refs["current_length", None],
        positions=positions,
        masks=(masks[0], masks[1]),
        layer_inputs=layer_inputs,
        axes=axes,
        deepstack=deepstack,
        keys=tuple(refs["k_cache", layer] for layer in cached),
        values=tuple(refs["v_cache", layer] for layer in cached),
        linear_mask=linear_mask,
        carried=carried.add(builder),
        carried_names=carried.names(),
    )
