"""The graphs a package has."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Literal

from ..blocks import Attention, DeltaNet, KeyDeltaNet, LatentAttention, Mamba, Mamba2, MlpAndExperts, ShortConv
from ..blocks.nets import nets_of
from ..common.errors import CompileError
from ..families import titles_of
from ..model_config import ModelConfig
from ..weights import roles
from .options import COMMON_OPTIONS, CompileOptions

FINAL_NORM = -1  # as number of hidden states: what the final norm gives
# Of a model with a prefill graph alone.
_CLASSIFIER_OPTIONS = COMMON_OPTIONS | {
    "prefill_length",
    "context_length",
    "all_logits",
    "ndevice",
    "single_device",
    "audio_frames",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSpec:
    """Which graph of the model.

    Attributes:
        name: What its file is called between the package's name and its suffix, `prefill` for example.
        tokens: T, the token axis of input 0.
        batch: B, slots with lengths and caches of their own; more than one only where T is 1.
        all_logits: Return the logits of every row, [B, T, V], zeros from row current_length on; otherwise those of row
            current_length - 1, [B, 1, V].
        argmax: Return the id of the largest logit of each row as well, int32 [B, T, 1], and that logit.
        hidden_states: Return hidden states instead of the logits: -1 for what the final norm gives, less for what a
            layer left out would read.
        position_ids: Positions of the tokens are an input, [1, T]; otherwise they begin at the valid length.
        masks: What tokens see are two inputs, [1, 1, T, S] and [1, 1, T, C]; otherwise the lengths say it.
        layers: The layers it runs, or None for all. With the first ones it takes embeddings, with the last
            ones it returns logits; otherwise hidden states [B, T, H], zeros from row current_length on.
        ndevice: Devices that run it together.
        mtp: It is of the model with multi-token prediction (`"target"`), and returns hidden states after its other
            outputs; or of that layer itself (`"draft"`); or of a model with an assistant (`"assisted"`), and returns
            hidden states too. None for all others.
        each_state: Linear attention returns its state after each token, because the run verifies guesses.
        split_conv: Columns of the convolution in linear attention are inputs and outputs for q, k and v.
        recurrent_in_place: Its states are written where they are read, and are no outputs.
    """

    name: str
    tokens: int
    batch: int = 1
    all_logits: bool = False
    argmax: bool = False
    hidden_states: int | None = None
    position_ids: bool = False
    masks: bool = False
    layers: range | None = None
    ndevice: int = 1
    mtp: Literal["target", "draft", "assisted"] | None = None
    each_state: bool = False
    split_conv: bool = False
    recurrent_in_place: bool = False

    @property
    def has_norm(self) -> bool:
        """Whether it ends in the final norm, or in that and the head."""
        return self.hidden_states in (None, FINAL_NORM)

    @property
    def file_suffix(self) -> str:
        """What its file's name ends in."""
        return ".hmms" if self.ndevice > 1 else ".hmm"


def graph_specs(options: CompileOptions, config: ModelConfig, *, assisted: bool = False) -> list[GraphSpec]:
    """Returns the graphs that `options` ask for; of a model with an assistant the vendor's decode verifies guesses.

    Raises:
        CompileError: More pipeline stages than blocks, or inputs or slots that graphs of the family have not.
    """
    given, masks = options.position_ids, options.masks
    if config.classes is not None:
        return _classifier_specs(options, config)
    if config.family.contract.axes and given:
        raise CompileError(
            f"--position-ids: graphs of {config.family.title} always take positions, along time, height and width; "
            "leave it out"
        )
    if options.batch > 1 and (inputs := one_slot_for(config)):
        raise CompileError(
            f"--batch {options.batch}: the vendor has no graph of several slots with {inputs}, which those of "
            f"{config.family.title} take; leave it out"
        )
    if nets_of(config):
        _check_carried(options, config)
    elif options.split_conv or options.recurrent_in_place:
        flag = "--split-conv" if options.split_conv else "--recurrent-in-place"
        raise CompileError(f"{flag}: {config.family.title} has no layers with linear attention; leave it out")
    _check_layers(options, config)
    if options.mtp:
        specs = [_with_states(spec, options) for spec in _mtp_specs(options, config)]
        stages = _stage_specs([spec for spec in specs if spec.mtp == "target"], options, config)
        if stages and not options.single_device:  # the layer has no stages; it runs where the head is
            stages += [spec for spec in specs if spec.mtp == "draft"]
        return _for_devices(specs, stages, options)
    if masks and not config.family.contract.masks:
        raise CompileError(
            f"--masks: the vendor's graphs of {config.family.title} have no mask inputs, those of "
            f"{titles_of(lambda family: family.contract.masks)} have; leave it out"
        )
    specs = [
        GraphSpec(name="prefill", tokens=options.prefill_length, all_logits=options.all_logits),
        GraphSpec(name="decode", tokens=1, batch=options.batch, argmax=options.argmax),
    ]
    if assisted:
        assert options.verify_tokens is not None
        decode = GraphSpec(name="decode", tokens=options.verify_tokens, all_logits=True, mtp="assisted")
        specs = [replace(specs[0], mtp="assisted"), decode]
    elif options.verify_tokens is not None:
        specs.append(GraphSpec(name="verify", tokens=options.verify_tokens, all_logits=True))
    hidden = options.hidden_states
    specs = [_with_states(replace(s, position_ids=given, masks=masks, hidden_states=hidden), options) for s in specs]
    return _for_devices(specs, _stage_specs(specs, options, config), options)


def one_slot_for(config: ModelConfig) -> str:
    """Returns for which of its inputs a model has no graph of several slots; empty where it has one."""
    contract = config.family.contract
    if contract.axes and not contract.carried:
        return "positions along time, height and width"
    return "per-layer inputs" if config.layer_inputs else ""


def _stage_specs(specs: list[GraphSpec], options: CompileOptions, config: ModelConfig) -> list[GraphSpec]:
    """The stages of these graphs; none without --pipeline."""
    return [
        replace(spec, name=f"{spec.name}_part{stage}", layers=layers)
        for spec in specs
        for stage, layers in enumerate(_stages(config.num_layers, options.pipeline))
        if options.pipeline > 1
    ]


def _for_devices(specs: list[GraphSpec], stages: list[GraphSpec], options: CompileOptions) -> list[GraphSpec]:
    """Whole graphs for one device, for several together, or both; and stages."""
    shared = [replace(spec, ndevice=options.ndevice) for spec in specs if options.ndevice > 1]
    return [*(specs if options.single_device else []), *stages, *shared]


def _classifier_specs(options: CompileOptions, config: ModelConfig) -> list[GraphSpec]:
    """A model that sorts the tokens of a text into classes reads them once."""
    options.refuse_others(
        _CLASSIFIER_OPTIONS,
        f"the head of this checkpoint sorts tokens into {config.classes} classes, so it has a prefill graph alone",
    )
    spec = GraphSpec(name="prefill", tokens=options.prefill_length, all_logits=True)
    return _for_devices([spec], [], options)


def _mtp_specs(options: CompileOptions, config: ModelConfig) -> list[GraphSpec]:
    """As the vendor's build names them: what it calls decode verifies T tokens.

    The vendor has one slot. With several, decode takes a token of each, and what verifies those of one is `verify`.
    """
    if roles.MTP_JOIN not in config.family.tensors:
        raise CompileError(f"--mtp: of {config.family.title} no layer of multi-token prediction compiles; leave it out")
    assert options.verify_tokens is not None
    length, all_logits, argmax = options.prefill_length, options.all_logits, options.argmax
    verify = GraphSpec(name="decode", tokens=options.verify_tokens, all_logits=True, mtp="target", each_state=True)
    target = [verify]
    if options.batch > 1:
        decode = GraphSpec(name="decode", tokens=1, batch=options.batch, argmax=argmax, mtp="target")
        target = [decode, replace(verify, name="verify")]
    return [
        GraphSpec(name="prefill", tokens=length, all_logits=True, mtp="target"),
        *target,
        GraphSpec(name="prefill_mtp", tokens=length, all_logits=all_logits, mtp="draft"),
        GraphSpec(name="decode_mtp", tokens=1, argmax=argmax, mtp="draft"),
    ]


def _with_states(spec: GraphSpec, options: CompileOptions) -> GraphSpec:
    in_place = options.recurrent_in_place and spec.name == "prefill"
    return replace(spec, split_conv=options.split_conv, recurrent_in_place=in_place)


def _check_layers(options: CompileOptions, config: ModelConfig) -> None:
    """What graphs do not have of layers that differ in their heads, share caches or have inputs of their own."""
    blocks = [block for layer in range(config.num_layers) for block in config.blocks(layer)]
    attention = [block for block in blocks if isinstance(block, Attention)]
    title = config.family.title
    whole = config.streams > 1 or any(b.head_dim or b.kv_heads or b.values != "own" for b in attention)
    if options.ndevice > 1 and (whole or any(isinstance(block, MlpAndExperts) for block in blocks)):
        raise CompileError(
            f"--ndevice {options.ndevice}: layers of this {title} differ in their heads or in what they share, and are "
            "compiled for one device; leave it out"
        )
    if options.pipeline > 1 and (config.layer_inputs or any(not block.has_cache for block in attention)):
        raise CompileError(
            f"--pipeline {options.pipeline}: layers of this {title} share caches or take inputs of their own, which no "
            "stage hands to the next; leave it out"
        )
    if options.pipeline > 1 and config.hidden_after is not None:
        raise CompileError(
            f"--pipeline {options.pipeline}: graphs of this {title} also return hidden states of a layer, which no "
            "stage hands to the next; leave it out"
        )
    if config.streams > 1 and (options.hidden_states or FINAL_NORM) < FINAL_NORM:
        raise CompileError(
            f"--hidden-states {options.hidden_states}: layers of {title} hand on several hidden states of a token; "
            "give -1, what the final norm gives"
        )
    if options.position_ids and config.family.contract.local_mask is not None:
        raise CompileError(
            f"--position-ids: the vendor has no graph with positions beside masks, which those of {title} always take; "
            "leave it out"
        )


def _check_carried(options: CompileOptions, config: ModelConfig) -> None:
    """What graphs with linear attention do not have: its states only go forward."""
    given = {
        "a draft": options.has_draft,
        f"--verify-length {options.verify_tokens}": options.verify_tokens is not None and not options.mtp,
        "--position-ids": options.position_ids,
    }
    for what, is_given in given.items():
        if is_given:
            raise CompileError(
                f"{what}: {config.family.title} has layers with linear attention or convolutions, whose graphs do not "
                "have this; leave it out"
            )
    if len(config.family.contract.carried) == 1 and (options.split_conv or options.recurrent_in_place):
        flag = "--split-conv" if options.split_conv else "--recurrent-in-place"
        raise CompileError(f"{flag}: states of {config.family.title} are columns of one convolution; leave it out")
    nets = nets_of(config).values()
    if options.split_conv and any(isinstance(net, KeyDeltaNet | Mamba | Mamba2) for net in nets):
        raise CompileError(f"--split-conv: convolutions of {config.family.title} are not over q, k and v; leave it out")
    # A model without any caches says how long its context is.
    caching = (Attention, LatentAttention)
    attention = [b for layer in range(config.num_layers) for b in config.blocks(layer) if isinstance(b, caching)]
    for stage, layers in enumerate(_stages(config.num_layers, options.pipeline)):
        if attention and not any(isinstance(block, caching) for layer in layers for block in config.blocks(layer)):
            raise CompileError(
                f"--pipeline {options.pipeline}: stage {stage}, layers {layers.start} to {layers.stop - 1}, would have "
                "linear attention or convolutions alone, and programs learn the context's length from a cache; take "
                "fewer stages"
            )
    for net in nets:
        if isinstance(net, KeyDeltaNet | Mamba) and options.ndevice > 1:
            raise CompileError(
                f"--ndevice {options.ndevice}: layers with states of {config.family.title} are for one device; leave "
                "it out"
            )
        if isinstance(net, Mamba2) and net.groups % options.ndevice:
            raise CompileError(
                f"--ndevice {options.ndevice} does not divide the {net.groups} groups of state-space layers, which are "
                "split by whole groups, equally many on each device; leave it out"
            )
        if isinstance(net, ShortConv) and net.channels % options.ndevice:
            raise CompileError(
                f"--ndevice {options.ndevice} does not divide the {net.channels} channels of convolutions, which are "
                "split evenly"
            )
        if isinstance(net, DeltaNet) and net.key_heads % options.ndevice:
            raise CompileError(
                f"--ndevice {options.ndevice} does not divide the {net.key_heads} key heads of linear attention, which "
                "is split by whole heads, equally many on each device"
            )


def _stages(layers: int, stages: int) -> list[range]:
    """Cuts the blocks evenly. What is left over goes to the first stages: the last one has the head as well."""
    if stages > layers:
        raise CompileError(f"--pipeline {stages} is more stages than the model's {layers} blocks")
    starts = [stage * (layers // stages) + min(stage, layers % stages) for stage in range(stages + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(starts)]
