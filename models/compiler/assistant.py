"""The graph of an assistant: a small model that guesses tokens with the caches of a model's last layers.

Names and order of inputs are those of the vendor's exporter and of the program that runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, Role, WeightEntry

from ..blocks import Attention
from ..blocks.head import head_weights, lower_head
from ..blocks.part import GraphPart
from ..blocks.shards import shards_of
from ..blocks.specs import specs_of
from ..blocks.weights import Weight
from ..checkpoints.checkpoint import Checkpoint, config_of
from ..common.errors import CompileError
from ..common.profiles import Profile, profile_for
from ..families import FAMILIES
from ..family import Family
from ..graphs.builder import GraphBuilder
from ..graphs.slot import Slot
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from ..weights.spec import LinearSpec, VectorSpec
from .encoder import encoder_graph
from .graph_inputs import cached_layers, mask_columns
from .options import CompileOptions
from .parts import OtherGraphs
from .prepare import PreparedModel
from .source import folder_of
from .weight_files import rope_tables

ASSISTANT = "assistant"  # what the names of its files end in
# Which caches a layer takes: those of the model's last layer with a window, or of its last one.
_KINDS = ("sliding", "full")
# Of one with clusters of tokens: that of each token; -1; a number above all logits; the tensor with tokens in order.
_CLUSTERS, _ONE_LESS, _MOST = "clusters.of_tokens", "clusters.one_less", "clusters.most"
_LARGE = 65504.0
_ORDER = "masked_embedding.token_ordering"
# Options for graphs that a model with an assistant does not have.
NOT_WITH_ASSISTANT = ("batch", "pipeline", "ndevice", "argmax", "all_logits", "draft_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """What becomes the graph.

    Attributes:
        config: Of the assistant.
        caches: Shapes of keys and of values, of each kind.
        context: Rows of the caches.
        columns: Of the mask of layers with a window: cache rows, the last one that of the token itself.
        shared: Which caches of the model these are, of those that it has.
        clusters: Of each token, where only tokens of some clusters have logits of their own.
    """

    config: ModelConfig
    caches: Sequence[tuple[int, ...]]
    context: int
    columns: int
    shared: Sequence[int]
    clusters: NDArray[np.int32] | None = None

    @property
    def row(self) -> int:
        """Length of a row of the input: an embedding and a hidden state of the model."""
        return 2 * int(self.config.flags["backbone_hidden_size"])

    def specs(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        """Returns the weights in the order of use.

        Raises:
            CompileError: A quantised weight whose inputs are not a multiple of 64.
        """
        config, tensors = self.config, self.config.family.tensors
        specs = specs_of([Weight(roles.INPUT_PROJECTION, (config.hidden_size,), self.row)], tensors, profile, None)
        for layer in range(config.num_layers):
            weights = [weight for block in config.blocks(layer) for weight in block.weights(config)]
            specs += specs_of(weights, tensors, profile, layer)
        tied = tensors[roles.EMBEDDING].names if config.tie_word_embeddings else ()
        specs += specs_of(head_weights(config), tensors, profile, None, tied)
        own = Weight(roles.HIDDEN_PROJECTION, (self.row // 2,), config.hidden_size)
        specs += specs_of([own], tensors, profile, None)
        if self.clusters is None:
            return specs
        count = self.config.flags["num_centroids"]
        return specs + specs_of([Weight(roles.CENTROIDS, (count,), config.hidden_size)], tensors, profile, None)

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        """What the graph needs beside the weights, by name."""
        found: dict[str, NDArray[Any]] = {
            name: table.astype(dtype) for name, table in rope_tables(self.config, self.context)
        }
        if self.clusters is not None:
            found |= {_CLUSTERS: self.clusters, _ONE_LESS: np.full(1, -1, dtype), _MOST: np.full(1, _LARGE, dtype)}
        return found

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """A row of the input -> logits, and what takes the place of the hidden state in the next row."""
        # With the mask of a window, column j is cache row max(position - (window - 1), 0) + j.
        windows = tuple(None if window is None else self.columns for window in self.config.windows)
        config = replace(self.config, windows=windows)
        builder = GraphBuilder(ASSISTANT, profile.tensor_dtype, weights, profile.activations)
        x = builder.input("inputs_embeds", (1, 1, self.row), role=Role("embeddings"))
        lengths = [
            builder.input(port.alias, (1,), "int32", role=Role(port.role, None, 0), aliases=[port.name])
            for port in config.family.contract.per_slot
        ]
        masks = [
            builder.input(f"{kind}_attention_mask", (1, 1, 1, columns), role=Role(f"{kind}_attention_mask", None, 0))
            for kind, columns in (("local", self.columns), ("global", self.context))
        ]
        shared = [
            [builder.input(f"shared_{what}_cache_{kind}", shape) for what in ("key", "value")]
            for kind, shape in zip(_KINDS, self.caches, strict=True)
        ]
        slot = Slot(
            valid=lengths[0], current=lengths[1], positions=None, keys=(), values=(), masks=(masks[0], masks[1])
        )
        part = GraphPart(
            builder=builder,
            config=config,
            shard=shards_of(config, 1)[0],
            slots=[slot],
            layers=range(config.num_layers),
            cached_layers=[],
            kept_row=None,
            caches={kind: ([keys], [values]) for kind, (keys, values) in enumerate(shared)},
        )
        x = part.linear("input_projection", x, roles.INPUT_PROJECTION)
        for layer in part.layers:
            for number, block in enumerate(config.blocks(layer)):
                x = block.lower(part, x, layer, f"layers.{layer}.block_{number}")
        normed = part.norm_of_hidden("final_norm", x, roles.FINAL_NORM)
        logits = lower_head(part, normed) if self.clusters is None else self._of_clusters(part, normed)
        hidden = part.linear("assistant_hidden_state", normed, roles.HIDDEN_PROJECTION)
        return builder.build({logits: Role("logits"), hidden: Role("hidden")})

    def _of_clusters(self, part: GraphPart, normed: Ref) -> Ref:
        """Logits of tokens in the likeliest clusters; all others have one less than the lowest of these."""
        builder, flags, name = part.builder, self.config.flags, part.config.family.contract.output
        logits = lower_head(part, normed, name="logits.of_all")
        scores = part.linear("clusters", normed, roles.CENTROIDS)
        least = builder.kth_largest("clusters.least", scores, flags["centroid_intermediate_top_k"])
        left_out = builder.repeated("Less", "clusters.left_out", scores, least)
        hidden = builder.gather("logits.left_out", left_out, builder.weight(_CLUSTERS), 2)
        kept = builder.where("logits.kept", hidden, builder.weight(_MOST), logits)
        lowest = builder.repeated(
            "Add", "logits.low", builder.smallest("logits.lowest", kept), builder.weight(_ONE_LESS)
        )
        return builder.where(name, hidden, lowest, logits)


def assistant_in(options: CompileOptions) -> Family | None:
    """Returns the family of the assistant that `--draft` names; None where it names no assistant.

    Raises:
        CompileError: Options for graphs that a model with an assistant does not have.
    """
    found = None if options.draft is None else assistant_family(options.draft)
    if found is not None:
        reason = f"graphs of a model with {found.title} are for one sequence on one device"
        options.refuse_these(NOT_WITH_ASSISTANT, reason)
    return found


def assistant_family(draft: Path) -> Family | None:
    """Returns the family of the assistant in a checkpoint; None where it is no assistant."""
    if not (folder_of(draft) / "config.json").is_file():
        return None
    raw = config_of(folder_of(draft))
    return next((own for f in FAMILIES.values() if (own := f.assistant) is not None and own.is_of(raw)), None)


def prepare_assistant(options: CompileOptions, target: PreparedModel, family: Family) -> OtherGraphs:
    """Returns what becomes `NAME_assistant.hmm`.

    Raises:
        CheckpointError: A tensor is missing or does not fit.
        CompileError: The assistant is not one of this model.
    """
    assert options.draft is not None
    folder, context = folder_of(options.draft), options.context
    if target.config.family.assistant is not family:
        raise CompileError(
            f"--draft: {folder} is {family.title}, and {target.source.path} is {target.config.family.title}; take an "
            "assistant of this model"
        )
    verified = mask_columns(target.config, options.verify_tokens or 1, context)[0]
    caches = _caches_of(target.config, context)
    assistant = Assistant(
        config=family.read(config_of(folder)),
        caches=[shape for _, shape in caches],
        context=context,
        columns=min(verified + 1, context),
        shared=[place for place, _ in caches],
    )
    if assistant.config.flags["use_ordered_embeddings"]:
        assistant = replace(assistant, clusters=_clusters_of(assistant.config, folder, options.random_weights))
    _check_fit(folder, assistant, target)
    quant = options.draft_quant or options.quant
    profile = profile_for(quant, None if options.draft_quant else options.head_quant, options.activations)
    if profile.tensor_dtype != target.profile.tensor_dtype:
        raise CompileError(
            f"--draft-quant {quant}: an assistant reads the model's caches, which are {target.profile.tensor_dtype}, "
            f"not {profile.tensor_dtype}"
        )
    message = {
        "model_type": family.model_type,
        "quant": profile.quant,
        "context_length": context,
        "sliding_window": assistant.config.mask_window or context,
        "shared_caches": assistant.shared,
    }
    own = replace(options, checkpoint=folder)
    return encoder_graph(f"{target.name}_{ASSISTANT}", own, profile, assistant, assistant.specs(profile), message)


def _clusters_of(config: ModelConfig, folder: Path, random_weights: bool) -> NDArray[np.int32]:
    """The cluster of each token: the checkpoint lists tokens cluster by cluster, equally many of each."""
    count, chosen = config.flags["num_centroids"], config.flags["centroid_intermediate_top_k"]
    if config.vocab_size % count or chosen > count:
        raise CompileError(
            f"--draft: {folder} has num_centroids={count}, expected a divisor of vocab_size={config.vocab_size} "
            f"that is at least centroid_intermediate_top_k={chosen}"
        )
    order = np.arange(config.vocab_size, dtype=np.int32)
    if not random_weights:
        order = Checkpoint(folder).integers(_ORDER)
        if order.shape != (config.vocab_size,) or not np.array_equal(np.sort(order), np.arange(config.vocab_size)):
            raise CompileError(f"--draft: {_ORDER} of {folder} does not list each of {config.vocab_size} tokens once")
    clusters = np.empty(config.vocab_size, np.int32)
    clusters[order] = np.arange(config.vocab_size) // (config.vocab_size // count)
    return clusters


def _caches_of(config: ModelConfig, context: int) -> list[tuple[int, tuple[int, ...]]]:
    """Places among those of the model, and shapes, of caches of the last layer with a window and of the last without.

    Layers without caches of their own do not count.
    """
    last: dict[bool, tuple[int, tuple[int, ...]]] = {}
    for place, (layer, block) in enumerate(cached_layers(config, range(config.num_layers)).items()):
        last[config.windows[layer] is None] = place, block.cache_shape(config, config.num_kv_heads, context)
    if len(last) < len(_KINDS):
        raise CompileError(
            "--draft: an assistant reads caches of a layer with a window and of one without; this model has one kind"
        )
    return [last[False], last[True]]


def _check_fit(folder: Path, assistant: Assistant, target: PreparedModel) -> None:
    config, model = assistant.config, target.config
    pairs: dict[str, tuple[object, object]] = {
        "backbone_hidden_size": (config.flags["backbone_hidden_size"], model.hidden_size),
        "vocab_size": (config.vocab_size, model.vocab_size),
    }
    for layer in range(config.num_layers):
        attention = next(block for block in config.blocks(layer) if isinstance(block, Attention))
        assert attention.source is not None
        own = attention.cache_shape(config, config.num_kv_heads, assistant.context)
        pairs[f"KV heads and head_dim of layer {layer}"] = own[1::2], assistant.caches[attention.source][1::2]
    for what, (ours, theirs) in pairs.items():
        if ours != theirs:
            raise CompileError(
                f"--draft: {folder} has {what} {ours!r}, expected the {theirs!r} of {target.source.path}; take an "
                "assistant of this model"
            )
