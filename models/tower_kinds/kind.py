"""What a kind of vision towers answers: a record of it, and the plan of a package's graphs that the record makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..checkpoints.checkpoint import Checkpoint
from ..common.profiles import Profile
from ..weights.spec import LinearSpec, TensorSource, VectorSpec
from .asked import Asked

if TYPE_CHECKING:
    from ..model_config import ModelConfig


class Tower(Protocol):
    """The vision tower of a family: a frozen record."""

    @property
    def tiny(self) -> Mapping[str, Any]:
        """A `vision_config` for tests."""

    @property
    def images(self) -> str:
        """Of what images it makes features, for the table of docs/models.md."""

    def plan(self, asked: Asked, raw: Mapping[str, Any], model: ModelConfig) -> TowerPlan:
        """Returns the graphs that are asked for, of a parsed `config.json` with this language model.

        Raises:
            CompileError: Its `vision_config` is missing, or a value is missing, malformed or not supported, or there
                are no such graphs.
        """

    def store(self, folder: Path) -> Checkpoint:
        """Opens a checkpoint under the names of tensors that the record has.

        Raises:
            CheckpointError: It has no such tower.
        """


class TowerPlan(Protocol):
    """The graphs that are asked for, and what they need."""

    @property
    def ends(self) -> Sequence[str]:
        """What the names of the graphs' files end in, behind `_visual`."""

    def other_end(self, end: str) -> str | None:
        """Returns what a second name of such a file ends in, which some programs look for; None: it has no other."""

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

    def lists(self) -> Mapping[Path, Any]:
        """Returns what programs look for beside the graphs, as JSON by its place in the package."""
