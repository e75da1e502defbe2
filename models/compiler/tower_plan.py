"""What is particular to the graphs of a kind of vision towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..common.errors import CompileError
from ..common.profiles import Profile
from ..common.weight_spec import LinearSpec, TensorSource, VectorSpec

DEFAULT = "default"  # what `--vision` without a size asks for
_MOST_PATCHES = 1 << 16


class TowerPlan(Protocol):
    """The graphs that are asked for, and what they need."""

    @property
    def ends(self) -> Sequence[str]:
        """What the names of the graphs' files end in, behind `_visual`."""

    def weights(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        """Returns the weights that come from tensors, in the order of use, but the tables."""

    def tables(self) -> Sequence[LinearSpec | VectorSpec]:
        """Returns what constants are made of."""

    def constants(self, tensors: TensorSource, dtype: str) -> dict[str, NDArray[Any]]:
        """Returns what is stored beside the weights: floats in `dtype`, integers as int32."""

    def graph(self, end: str, profile: Profile, entries: Sequence[WeightEntry]) -> Graph:
        """Returns the graph of a file."""

    def message(self, end: str) -> dict[str, Any]:
        """Returns what a program may want to know of it, beside what it wants to know of every tower."""


def check_patches(asked: str, patches: int) -> None:
    """Raises CompileError if a graph would be for too many patches, or for none."""
    if not 0 < patches <= _MOST_PATCHES:
        raise CompileError(f"--vision {asked} makes {patches} patches, expected 1 to {_MOST_PATCHES}")
