"""The graphs of a model: inputs as the family's contract orders them, then blocks, then the head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tcim_lite.hmm import WHOLE, Graph, Role, Split, WeightEntry

from ..blocks import KeyDeltaNet, Mamba, Mlp, Moe
from ..blocks.altup import join_streams, lower_streams
from ..blocks.conditioned import lower_norm
from ..blocks.head import lower_head, lower_input, lower_speaker
from ..blocks.mtp import POST_NORM_HIDDEN
from ..blocks.nets import nets_of
from ..blocks.part import GraphPart
from ..blocks.per_layer import lower_layer_inputs
from ..blocks.shards import Shard
from ..blocks.tables import lower_tables
from ..common.profiles import Profile
from ..graphs.builder import GraphBuilder
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .carried import is_carried_role
from .graph_inputs import GraphInputs, cached_layers, residual_name
from .graph_specs import GraphSpec
from .lora import LoraWeight

HIDDEN_STATES = "hidden_states"  # what graphs without a head return, or those of a layer, beside the logits
_LAST_HIDDEN = "last_hidden_state"  # what the final norm gives, as an assistant reads it


def build_graph(
    config: ModelConfig,
    profile: Profile,
    weights: Sequence[WeightEntry],
    spec: GraphSpec,
    context_length: int,
    shard: Shard,
    lora: Sequence[LoraWeight] = (),
) -> Graph:
    """Returns the graph `spec` describes as one device runs it, its caches [1, Hkv, C, D] with its own heads only.

    `lora` says which weights are changed by inputs.
    """
    assert spec.batch == 1 or spec.tokens == 1
    assert spec.ndevice == shard.ndevice
    layers = spec.layers or range(config.num_layers)
    builder = GraphBuilder(spec.name, profile.tensor_dtype, weights, profile.activations)
    inputs = GraphInputs(builder=builder, config=config, spec=spec, context=context_length, shard=shard, layers=layers)
    x = inputs.hidden(_blocks_of(config, range(layers.start)))
    given = inputs.of_rows()
    slots = [inputs.slot(slot) for slot in range(spec.batch)]
    number = inputs.head_number()
    condition = slots[0].condition
    # Of one token, that token is the live row.
    live_rows = slots[0].current if spec.tokens > 1 else None
    part = GraphPart(
        builder=builder,
        config=config,
        shard=shard,
        slots=slots,
        layers=layers,
        cached_layers=list(cached_layers(config, layers)),
        kept_row=None if spec.all_logits or config.speaker_size else live_rows,
        tables=lower_tables(builder, slots) if config.family.contract.axes else None,
        condition=None if condition is None else builder.reshape("condition", condition, (1, *condition.shape)),
        lora=inputs.lora(lora),
    )
    x, kept = _lower_layers(part, spec, x, given)
    # What mixes rows of the input computes them all, and so do products of inputs, streams and channels; a condition is
    # of no row.
    mixed = config.source_size is not None or config.condition_size is not None
    by_channel = any(isinstance(net, KeyDeltaNet | Mamba) for net in nets_of(config).values())
    whole = mixed or by_channel or config.streams > 1 or bool(part.lora)
    counted = None if whole else live_rows
    if layers.stop < config.num_layers:
        return builder.build({x: Role("hidden")} | _handed_on(inputs, part), live_rows=counted)
    outputs = _lower_end(inputs, part, x, number, given, live_rows)
    if kept is not None:
        outputs[kept] = None
    if spec.argmax:
        logits = next(iter(outputs))
        outputs |= dict(zip(builder.largest("token", logits), (Role("token_id"), Role("token_logit")), strict=True))
    return builder.build(outputs, live_rows=counted)


def split_of(part: Graph) -> Split:
    """Returns how the parts of a graph share its inputs and outputs: what has heads is cut by them, the rest whole."""

    def axis(id_: int) -> int:
        value = part.values[id_]
        carried = value.role is not None and is_carried_role(value.role.name)
        own_heads = value.kind == "state" and (value.role is None or value.role.name != "latent_cache")
        return 1 if own_heads or carried else WHOLE

    return Split([axis(id_) for id_ in part.inputs], [axis(id_) for id_ in part.outputs])


def _blocks_of(config: ModelConfig, layers: range) -> int:
    return sum(len(config.blocks(layer)) for layer in layers)


def _residuals(config: ModelConfig, spec: GraphSpec, layers: range) -> Iterator[str]:
    """Yields the names of what the blocks end in."""
    first = _blocks_of(config, range(layers.start))
    names = [residual_name(first + at) for at in range(_blocks_of(config, layers))]
    ends_in_hidden = spec.hidden_states is not None and not (spec.has_norm and config.final_norm)
    if ends_in_hidden and layers.stop == config.num_layers:
        names[-1] = HIDDEN_STATES
    yield from names


def _lower_layers(part: GraphPart, spec: GraphSpec, x: Ref, given: Mapping[str, Ref]) -> tuple[Ref, Ref | None]:
    """Returns the hidden states behind the layers, and those that are an output beside the logits, if any are."""
    builder, config, layers = part.builder, part.config, part.layers
    kept = None
    if config.hidden_after == 0:
        kept = x if part.kept_row is None else builder.last_row(f"{HIDDEN_STATES}.row", x, part.kept_row)
        kept = builder.reshape(HIDDEN_STATES, kept, kept.shape)
    if not layers.start:
        x = lower_input(part, x, given)
    if config.layer_inputs:
        (lane,) = part.slots
        assert lane.layer_inputs is not None
        part = replace(part, layer_inputs=lower_layer_inputs(part, x, lane.layer_inputs))
    if config.streams > 1:
        x = lower_streams(part, x)
    residuals = _residuals(config, spec, layers)
    for layer in layers:
        blocks = config.blocks(layer)
        if part.kept_row is not None and layer + 1 == config.num_layers and isinstance(blocks[0], Mlp | Moe):
            x = builder.last_row(f"layers.{layer}.row", x, part.kept_row)
        for block in blocks:
            x = block.lower(part, x, layer, next(residuals))
        if layer + 1 == config.hidden_after and spec.hidden_states is None:
            kept = x = builder.reshape(HIDDEN_STATES, x, x.shape)
    return x if config.streams == 1 else join_streams(part, x), kept


def _lower_end(
    inputs: GraphInputs,
    part: GraphPart,
    x: Ref,
    number: Ref | None,
    given: Mapping[str, Ref],
    live_rows: Ref | None,
) -> dict[Ref, Role | None]:
    """Returns what the last layer's graph gives: logits or hidden states first, then what else programs take."""
    config, spec = part.config, inputs.spec
    name = {None: config.family.contract.hidden, "assisted": _LAST_HIDDEN}.get(spec.mtp, POST_NORM_HIDDEN)
    apart = spec.mtp == "assisted" and config.logit_cap is not None  # the norm before the head divides by the cap
    if spec.hidden_states is not None:
        name = config.family.contract.hidden or HIDDEN_STATES
    if config.speaker_size:
        name = ""
    normed = "final_norm" if apart else name or "final_norm"
    hidden = lower_norm(part, normed, x, roles.FINAL_NORM)[0] if spec.has_norm and config.final_norm else x
    outputs: dict[Ref, Role | None] = {hidden: Role("hidden")}
    if spec.hidden_states is None:
        read = hidden
        if config.speaker_size and live_rows is not None and not spec.all_logits:
            read = part.builder.last_row("final_row", hidden, live_rows)
        outputs = {lower_head(part, read, number, given.get("head_mask")): Role("logits")}
    outputs |= _handed_on(inputs, part)
    if config.speaker_size:
        outputs[lower_speaker(part, hidden)] = Role("hidden")
    elif apart:
        outputs[part.norm_of_hidden(name, x, roles.HIDDEN_NORM)] = Role("hidden")
    elif name:
        outputs[hidden] = Role("hidden")
    return outputs


def _handed_on(inputs: GraphInputs, part: GraphPart) -> dict[Ref, Role]:
    """What linear attention hands to the next run, of all slots."""
    outputs: dict[Ref, Role] = {}
    for slot, lane in enumerate(part.slots):
        outputs |= inputs.carried(slot).outputs(part.builder, lane.carried_on)
    return outputs
