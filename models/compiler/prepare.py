"""Reads a checkpoint's description and refuses, before the long work, whatever can be refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..blocks import Attention
from ..blocks.shards import Shard, shards_of
from ..checkpoints.checkpoint import TensorStore
from ..checkpoints.language_tensors import VOICE
from ..checkpoints.lora import LoraAdapter
from ..common.errors import CompileError, CompileWarning
from ..common.profiles import Profile, profile_for
from ..families import read_config
from ..family import Family
from ..model_config import ModelConfig
from ..weights.pack_stream import row_chunks
from ..weights.roles import EMBEDDING, HEAD, K_NORM, LAYER_TABLE, MTP_JOIN, QKV
from ..weights.spec import CheckpointTensors, LinearSpec, RandomTensors, TensorSource, VectorSpec
from .graph_specs import FINAL_NORM, GraphSpec, graph_specs
from .lora import LoraWeight, lora_weights
from .options import CompileOptions
from .source import Source, open_source
from .weights import embedding_spec, layer_table_spec, weight_specs


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A model that is ready to be written: where its numbers come from, which weights and graphs it has.

    Attributes:
        options: What was asked for.
        name: Prefix of the package's files.
        role: What the names of its files end in, before the suffix: `_draft` or nothing.
        source: What it is compiled from.
        config: Of the part of the checkpoint that is compiled.
        profile: Dtypes and formats.
        weights: All weights but the RoPE tables.
        tensors: Where the numbers come from.
        graphs: To write.
        shards: What each of several devices computes; empty without graphs for several.
        lora: What an adapter changes; empty without one.
    """

    options: CompileOptions
    name: str
    role: str
    source: Source
    config: ModelConfig
    profile: Profile
    weights: Sequence[LinearSpec | VectorSpec]
    tensors: TensorSource
    graphs: Sequence[GraphSpec]
    shards: Sequence[Shard]
    lora: Sequence[LoraWeight] = ()

    @property
    def weights_file(self) -> str:
        """Name of its `.hmw`."""
        return f"{self.name}{self.role}.hmw"

    def graph_file(self, graph: GraphSpec) -> str:
        """Returns the name of a graph's file."""
        return f"{self.name}_{graph.name}{self.role}{graph.file_suffix}"

    @property
    def uses_whole_weights(self) -> bool:
        """Whether a graph runs on one device."""
        return any(graph.ndevice == 1 for graph in self.graphs)

    @property
    def table_source(self) -> tuple[Path, str]:
        """What the numbers of the embedding file depend on, beside options that a pair shares."""
        return self.source.path.resolve(), self.profile.tensor_dtype


def prepare(
    options: CompileOptions,
    layers: int | None = None,
    role: str = "",
    part: Callable[[Mapping[str, Any]], ModelConfig] | None = None,
    *,
    assisted: bool = False,
) -> PreparedModel:
    """Returns what `options` describe, of the checkpoint's first `layers` blocks only if that is given.

    `role` is as in `PreparedModel`; `part` reads the config of one of several models in a checkpoint,
    and whoever compiles them all knows which tensors are left over; `assisted` asks for what an assistant reads.

    Raises:
        CompileError: The checkpoint or its config does not fit.

    Warns:
        CompileWarning: A context shorter than usual or beyond what the model was made for, a head that should be tied
            and is not, tensors without a place in the graph.
    """
    source = open_source(options.checkpoint, part or read_config, random_weights=options.random_weights)
    config = (part or read_config)(source.config)
    options = _within_limit(options, config)
    if options.context > config.max_position_embeddings:
        warn(
            f"--context-length {options.context} is beyond the checkpoint's "
            f"max_position_embeddings={config.max_position_embeddings}"
        )
    checkpoint = source.tensors
    if checkpoint is not None:
        config = _as_the_head_is(checkpoint, config)
    profile = profile_for(options.quant, options.head_quant, options.activations)
    graphs = graph_specs(options, config, assisted=assisted)
    if options.mtp and checkpoint is not None:
        _check_mtp(checkpoint, source.path)
    weights = weight_specs(config, profile, mtp=options.mtp, head=options.hidden_states is None, assisted=assisted)
    if checkpoint is not None and part is None and (unused := _unused_tensors(checkpoint, config, weights)):
        warn(_left_out(unused))
    if role == "_draft" and config.layer_inputs:
        raise CompileError(
            f"--draft: layers of {source.path} take inputs of their own, for which a pair has no table; take another "
            "draft"
        )
    if layers is not None:
        config = _draft_of(config, layers, source.path)
        graphs, weights = graph_specs(options, config), weight_specs(config, profile)
    if options.hidden_states is not None and options.hidden_states < FINAL_NORM:
        config = _without_last_layers(config, options.hidden_states)
        graphs, weights = graph_specs(options, config), weight_specs(config, profile, head=False, norm=False)
    model = PreparedModel(
        options=options,
        name=options.name or config.family.model_type,
        role=role,
        source=source,
        config=config,
        profile=profile,
        weights=weights,
        tensors=RandomTensors(options.seed) if checkpoint is None else CheckpointTensors(checkpoint),
        graphs=graphs,
        shards=_shards(source.path, config, options.ndevice),
        lora=() if options.lora is None or part is not None else lora_weights(LoraAdapter(options.lora), weights),
    )
    tables = [embedding_spec(config)] if EMBEDDING in config.family.tensors else []
    tables += [layer_table_spec(config)] if config.layer_inputs else []
    model.tensors.check([*model.weights, *tables])
    return model


def _within_limit(options: CompileOptions, config: ModelConfig) -> CompileOptions:
    """The options with a context that the model can have, where they do not say which."""
    limit = config.context_limit
    if limit is None or options.context <= limit.tokens:
        return options
    if options.context_length is not None:
        raise CompileError(
            f"--context-length {options.context}: {limit.reason}; give --context-length {limit.tokens} or less"
        )
    warn(f"the context is {limit.tokens} tokens, not {options.context}: {limit.reason}")
    fitted = replace(options, context_length=limit.tokens)
    fitted.check_lengths()
    return fitted


def _check_mtp(checkpoint: TensorStore, path: Path) -> None:
    if any(name.startswith("mtp.layers.1.") for name in checkpoint.names()):
        raise CompileError(
            f"--mtp: {path} has several MTP layers; the vendor's graphs are of one, so compile it without --mtp"
        )


def _shards(checkpoint: Path, config: ModelConfig, ndevice: int) -> list[Shard]:
    """The parts of several devices; an error says of which of a pair of models it is."""
    if ndevice == 1:
        return []
    try:
        return shards_of(config, ndevice)
    except CompileError as error:
        raise CompileError(f"{checkpoint}: {error}") from None


def _draft_of(config: ModelConfig, layers: int, checkpoint: Path) -> ModelConfig:
    """The model of the first layers, which guesses for the whole one."""
    if not 1 <= layers <= config.num_layers:
        raise CompileError(f"--draft-layers must be 1 to {config.num_layers}, the blocks in {checkpoint}, got {layers}")
    return _first_layers(config, layers)


def _without_last_layers(config: ModelConfig, hidden_states: int) -> ModelConfig:
    layers = config.num_layers + 1 + hidden_states
    if layers < 1:
        raise CompileError(
            f"--hidden-states {hidden_states}: the model has {config.num_layers} layers, and graphs run one at least; "
            f"give {-config.num_layers} or more"
        )
    if config.residual_scale != 1:
        raise CompileError(
            f"--hidden-states {hidden_states}: graphs of {config.family.title} keep hidden states at "
            f"{config.residual_scale:g} of their size before the final norm; give -1"
        )
    return _first_layers(config, layers)


def _first_layers(config: ModelConfig, count: int) -> ModelConfig:
    """The model without its last layers, and without what lists of one entry a layer say of them."""
    flags = {
        key: value[:count] if isinstance(value, Sequence) and len(value) == config.num_layers else value
        for key, value in config.flags.items()
        if not isinstance(value, str)
    }
    return replace(config, num_layers=count, flags={**config.flags, **flags})


def warn(text: str) -> None:
    """Warns of something that does not keep the package from being written."""
    warnings.warn(text, CompileWarning, stacklevel=4)


def warn_unused(names: Iterable[str], placed: Set[str], unread: tuple[str, ...] = ()) -> None:
    """Warns of tensors of a checkpoint that are in no part, but those that begin as `unread` says."""
    if unused := [name for name in names if name not in placed and not name.startswith(unread)]:
        warn(_left_out(unused))


def _left_out(unused: Sequence[str]) -> str:
    """Returns what to warn of, where a checkpoint holds these tensors and no graph has a place for them."""
    return (
        f"the checkpoint holds {len(unused)} tensors that config.json does not ask for, such as {unused[0]!r}; they "
        "are left out"
    )


def _as_the_head_is(checkpoint: TensorStore, config: ModelConfig) -> ModelConfig:
    if not config.tie_word_embeddings or _head_is_the_embedding(checkpoint, config.family):
        return config
    warn(
        f"config.json says tie_word_embeddings, but the checkpoint's {config.family.tensor(HEAD)} differs from its "
        f"embedding; taking {config.family.tensor(HEAD)}, as transformers does"
    )
    return replace(config, tie_word_embeddings=False)


def _head_is_the_embedding(checkpoint: TensorStore, family: Family) -> bool:
    """False only where a head is stored whose values are not those of the embedding."""
    head, embedding = family.tensor(HEAD), family.tensor(EMBEDDING)
    if head not in checkpoint or embedding not in checkpoint:
        return True
    shape = checkpoint.shape(head)
    return checkpoint.shape(embedding) == shape and all(
        np.array_equal(checkpoint.read(head, *rows), checkpoint.read(embedding, *rows)) for rows in row_chunks(shape)
    )


def _unused_tensors(
    checkpoint: TensorStore, config: ModelConfig, weights: Sequence[LinearSpec | VectorSpec]
) -> list[str]:
    used = {name for spec in weights for name in spec.tensors}
    used |= {spec.factors for spec in weights if isinstance(spec, LinearSpec)}
    beside = (HEAD, EMBEDDING, LAYER_TABLE) if config.layer_inputs else (HEAD, EMBEDDING)
    used |= {config.family.tensor(role) for role in beside}
    used |= set(_keys_of_others(config))
    # Old checkpoints carry the RoPE frequencies, which are computed here. A layer of multi-token prediction is used if
    # it is asked for; whoever compiles models that speak knows their tensors.
    known: tuple[str, ...] = VOICE if config.hidden_after is not None else ()
    if MTP_JOIN in config.family.tensors:
        known = ("mtp.",)
    unused = [
        name
        for name in checkpoint.names()
        if name not in used and not name.endswith("rotary_emb.inv_freq") and not name.startswith(known)
    ]
    if pattern := config.family.left_out:
        unused = [name for name in unused if not re.search(pattern, name)]
    # GPTQ's writers give every Linear a bias; one of zeros is none.
    return [name for name in unused if not name.endswith(".bias") or _holds_numbers(checkpoint, name)]


def _keys_of_others(config: ModelConfig) -> Iterator[str]:
    """Yields tensors of keys and values that files have of layers which take those of another layer."""
    for layer in range(config.num_layers):
        if any(isinstance(block, Attention) and not block.has_cache for block in config.blocks(layer)):
            for role in (QKV, K_NORM):
                yield from config.family.tensors[role].of(layer)


def _holds_numbers(checkpoint: TensorStore, name: str) -> bool:
    """False of a vector of zeros."""
    return len(checkpoint.shape(name)) != 1 or bool(checkpoint.read(name).any())
