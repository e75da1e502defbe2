"""What packages are made of, ready to be written: graphs with their weights, and files beside them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import WeightEntry

from ..common.errors import CompileError
from ..common.package import link_or_copy
from ..common.progress import Progress
from ..weights.pack_stream import to_fp16
from ..weights.spec import LinearSpec, TensorSource, VectorSpec, tensors_in
from .graph_files import GraphFile, write_graph_files, write_graphs
from .lora import LoraWeight
from .prepare import PreparedModel
from .weight_files import write_encoder_weights, write_weights


class Part(ABC):
    """A part of a package.

    Attributes:
        weights: What it is made of.
        elements: Numbers to read, for a progress bar.
        tensor_names: The checkpoint's tensors that it is made of.
    """

    __slots__ = ()

    @property
    def weights(self) -> Sequence[LinearSpec | VectorSpec]:
        return ()

    @property
    def elements(self) -> int:
        return sum(math.prod(spec.shape) for spec in self.weights if isinstance(spec, LinearSpec))

    @property
    def tensor_names(self) -> Set[str]:
        return tensors_in(self.weights)

    @abstractmethod
    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        """Writes its files into the folder of the package."""


@dataclass(frozen=True, slots=True)
class LanguageGraphs(Part):
    """The graphs of a language model."""

    model: PreparedModel

    @property
    def weights(self) -> Sequence[LinearSpec | VectorSpec]:
        return self.model.weights

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        entries, sibling = write_weights(folder, self.model, workers, bar)
        write_graphs(folder, self.model, entries, sibling)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGraphs(Part):
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

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        path, constants = folder / f"{self.stem}.hmw", self.constants()
        entries, sibling = write_encoder_weights(
            path, self.weights, constants, self.tensors, self.dtype, workers, bar, self.what
        )
        files = self.graphs(entries)
        write_graph_files(folder, files, entries, sibling, self_contained=self.self_contained)


@dataclass(frozen=True, slots=True)
class LoraFiles(Part):
    """The files of an adapter beside the graphs, of prefill and of decode, which take the same.

    Attributes:
        model: Name of the package.
        adapter: Name of the adapter.
        changes: What it changes.
        dtype: Of the graphs' tensors.
    """

    model: str
    adapter: str
    changes: Sequence[LoraWeight]
    dtype: str

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        first, second = (folder / f"{self.model}_{self.adapter}_{stage}_lora_input" for stage in ("prefill", "decode"))
        first.mkdir()
        second.mkdir()
        for weight in self.changes:
            for name, array in zip(weight.names(), weight.arrays(), strict=True):
                stored, beyond = (array, 0) if self.dtype == "float32" else to_fp16(array)
                if beyond:
                    raise CompileError(f"{beyond} numbers of {name} are beyond the fp16 range; use --quant float32")
                np.save(first / f"{name}.npy", stored)
                link_or_copy(first / f"{name}.npy", second / f"{name}.npy")


@dataclass(frozen=True, slots=True)
class SecondName(Part):
    """A second name of a file, at no cost where the file system can."""

    path: Path
    other: Path

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        named = folder / self.other
        named.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(folder / self.path, named)


@dataclass(frozen=True, slots=True)
class Beside(Part):
    """A file that programs look for.

    Attributes:
        path: In the package.
        content: Makes it.
        tensor_names: As in `Part`.
    """

    path: Path
    content: Callable[[], bytes]
    tensor_names: Set[str] = frozenset()

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        (folder / self.path).write_bytes(self.content())


def names_in(parts: Iterable[Part]) -> set[str]:
    """The checkpoint's tensors that parts are made of."""
    return {name for part in parts for name in part.tensor_names}
