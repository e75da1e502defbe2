"""What packages are made of, ready to be written: graphs with their weights, tables, and files beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from tcim_lite.hmm import WeightEntry

from ..common.package import EMBEDDING_SUFFIXES, LAYER_TABLE, link_or_copy
from ..common.progress import Progress
from ..weights.spec import LinearSpec, TensorSource, VectorSpec
from .graph_files import GraphFile, write_graph_files, write_graphs
from .prepare import PreparedModel
from .weight_files import write_embedding, write_encoder_weights, write_layer_table, write_linear, write_weights
from .weights import embedding_spec


class Part(Protocol):
    """A part of a package."""

    @property
    def elements(self) -> int:
        """Numbers to read, for a progress bar."""

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        """Writes its files into the folder of the package."""


@dataclass(frozen=True, slots=True)
class LanguageGraphs:
    """The graphs of a language model."""

    model: PreparedModel

    @property
    def elements(self) -> int:
        return _elements(self.model.weights)

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        entries, sibling = write_weights(folder, self.model, workers, bar)
        write_graphs(folder, self.model, entries, sibling)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGraphs:
    """Graphs that are not those of a language model, and share weights.

    Attributes:
        stem: Of the name of the `.hmw`.
        weights: In the order of use.
        tensors: Where their numbers come from.
        constants: Makes what is stored before them, by name.
        graphs: Makes the files of what is stored.
        dtype: Of the graphs' tensors, float16 or float32.
        self_contained: The graphs hold the weights.
        what: Whose values a warning of saturation is about.
    """

    stem: str
    weights: Sequence[LinearSpec | VectorSpec]
    tensors: TensorSource
    constants: Callable[[], Mapping[str, NDArray[Any]]]
    graphs: Callable[[Sequence[WeightEntry]], Iterable[GraphFile]]
    dtype: str
    self_contained: bool
    what: str = "of the weights"

    @property
    def elements(self) -> int:
        return _elements(self.weights)

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        path, constants = folder / f"{self.stem}.hmw", self.constants()
        entries, sibling = write_encoder_weights(
            path, self.weights, constants, self.tensors, self.dtype, workers, bar, self.what
        )
        files = self.graphs(entries)
        write_graph_files(folder, files, entries, sibling, self_contained=self.self_contained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of embeddings, or several one under the other.

    Attributes:
        path: Of its files in the package, without suffix.
        spec: What it is made of.
        tensors: Where the numbers come from.
        dtype: That they are stored in.
        scale: They are multiplied by this.
        listed: As in `write_embedding_pt`.
        bare: Likewise.
    """

    path: Path
    spec: LinearSpec
    tensors: TensorSource
    dtype: str
    scale: float = 1.0
    listed: str = ""
    bare: bool = False

    @classmethod
    def of(cls, model: PreparedModel, path: Path, *, listed: str = "", bare: bool = False) -> Table:
        """The embedding of a language model."""
        return cls(
            path=path,
            spec=embedding_spec(model.config),
            tensors=model.tensors,
            dtype=model.profile.tensor_dtype,
            scale=model.config.embedding_scale,
            listed=listed,
            bare=bare,
        )

    @property
    def elements(self) -> int:
        return math.prod(self.spec.shape)

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        path = folder / self.path
        write_embedding(path, self.spec, self.tensors, self.dtype, bar, self.scale, listed=self.listed, bare=self.bare)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFile:
    """A Linear that programs compute themselves.

    Attributes:
        path: Of its file in the package.
        weight: What it is made of,
        bias: and its bias.
        tensors: Where the numbers come from.
    """

    path: Path
    weight: LinearSpec
    bias: VectorSpec
    tensors: TensorSource

    @property
    def elements(self) -> int:
        return math.prod(self.weight.shape)

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        write_linear(folder / self.path, self.weight, self.bias, self.tensors, bar)


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The table of what layers take of each token."""

    model: PreparedModel
    elements: int = 0

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        write_layer_table(folder / LAYER_TABLE, self.model, bar)


@dataclass(frozen=True, slots=True)
class OtherNames:
    """Second names of a table's files, at no cost where the file system can."""

    source: Path
    others: Sequence[Path]
    elements: int = 0

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        for suffix in EMBEDDING_SUFFIXES:
            path = folder / self.source.with_suffix(suffix)
            for other in self.others:
                if not path.exists() or other == self.source:
                    continue
                named = folder / other.with_suffix(suffix)
                named.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(path, named)


@dataclass(frozen=True, slots=True)
class SecondName:
    """A second name of a file, at no cost where the file system can."""

    path: Path
    other: Path
    elements: int = 0

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        link_or_copy(folder / self.path, folder / self.other)


@dataclass(frozen=True, slots=True)
class Beside:
    """A file that programs look for.

    Attributes:
        path: In the package.
        content: Makes it.
    """

    path: Path
    content: Callable[[], bytes]
    elements: int = 0

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        (folder / self.path).write_bytes(self.content())


def _elements(weights: Iterable[LinearSpec | VectorSpec]) -> int:
    return sum(math.prod(spec.shape) for spec in weights if isinstance(spec, LinearSpec))
