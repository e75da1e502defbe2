"""A graph of its own for a part of a model that is not a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..checkpoints.checkpoint import Checkpoint, config_of
from ..checkpoints.quantized.table import decoded
from ..common.profiles import Profile
from ..sounds.kind import Encoder
from ..weights.spec import CheckpointTensors, LinearSpec, RandomTensors, TensorSource, VectorSpec
from .graph_files import GraphFile
from .options import CompileOptions
from .parts import OtherGraphs


def encoder_graph(
    stem: str,
    options: CompileOptions,
    profile: Profile,
    encoder: Encoder,
    specs: Sequence[LinearSpec | VectorSpec],
    message: Mapping[str, Any],
) -> OtherGraphs:
    """Returns what becomes `STEM.hmm` and `STEM.hmw`.

    Args:
        stem: Of the names of the files.
        options: The checkpoint, and whether graphs hold their weights.
        profile: Formats of the weights.
        encoder: What it is of.
        specs: Its weights in the order of use.
        message: `custom_msg` of the graph.

    Raises:
        CheckpointError: A tensor is missing or does not fit.
    """
    tensors: TensorSource = RandomTensors(options.seed)
    if not options.random_weights:
        tensors = CheckpointTensors(decoded(Checkpoint(options.checkpoint), config_of(options.checkpoint)))
    tensors.check(specs)
    return OtherGraphs(
        stem=stem,
        weights=specs,
        tensors=tensors,
        constants=lambda: encoder.constants(profile.tensor_dtype),
        graphs=lambda entries: [GraphFile(f"{stem}.hmm", [encoder.graph(profile, entries)], message)],
        dtype=profile.tensor_dtype,
        self_contained=options.self_contained,
    )
