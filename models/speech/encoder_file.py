"""Writes the graph of a part of a model that is not a language model, and its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..common.pack_stream import worker_pool
from ..common.profiles import Profile
from ..common.progress import Progress
from ..common.weight_spec import LinearSpec, VectorSpec
from ..compiler.graph_files import GraphFile, write_graph_files
from ..compiler.options import CompileOptions
from ..compiler.weight_files import write_encoder_weights
from .asked import tensors_of


class Part(Protocol):
    """Such a part."""

    def constants(self, dtype: str) -> Mapping[str, NDArray[Any]]:
        """What the graph needs beside the weights, by name."""

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Returns its graph."""


def write_encoder(
    folder: Path,
    stem: str,
    options: CompileOptions,
    profile: Profile,
    part: Part,
    specs: Sequence[LinearSpec | VectorSpec],
    message: Mapping[str, Any],
) -> None:
    """Writes `STEM.hmm` and `STEM.hmw`.

    Args:
        folder: To write into.
        stem: Of the names of the files.
        options: The checkpoint, and whether graphs hold their weights.
        profile: Formats of the weights.
        part: What to write.
        specs: Its weights in the order of use.
        message: `custom_msg` of the graph.

    Raises:
        CheckpointError: A tensor is missing or does not fit.
    """
    tensors, dtype = tensors_of(options), profile.tensor_dtype
    tensors.check(specs)
    with Progress(0, visible=False) as bar, worker_pool() as workers:
        entries, sibling = write_encoder_weights(
            folder / f"{stem}.hmw", specs, part.constants(dtype), tensors, dtype, workers, bar
        )
    file = GraphFile(f"{stem}.hmm", [part.graph(profile, entries)], message)
    write_graph_files(folder, [file], entries, sibling, self_contained=options.self_contained)
