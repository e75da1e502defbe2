"""What an encoder of sounds is to the compiler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..common.profiles import Profile
from ..weights.spec import LinearSpec, VectorSpec


class Encoder(Protocol):
    """What has a graph of its own, and is no language model."""

    def constants(self, dtype: str) -> Mapping[str, NDArray[Any]]:
        """What the graph needs beside the weights, by name."""

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """Returns its graph."""


class Sound(Encoder, Protocol):
    """Sizes of an encoder of sounds."""

    @property
    def frames(self) -> int:
        """That its graph takes."""

    @property
    def file_end(self) -> str:
        """What the name of the graph's file ends in."""

    def specs(self, profile: Profile, names: Collection[str]) -> list[LinearSpec | VectorSpec]:
        """Returns all weights in the order of the package.

        Args:
            profile: Their formats.
            names: Of the checkpoint's tensors.

        Raises:
            CompileError: A quantised weight whose inputs are not a multiple of 64.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundEncoder:
    """That of a family.

    Attributes:
        read: Reads its sizes from a parsed `config.json`, the frames that a user asks for and the width of the language
            model's hidden states; None where the file has no encoder. Raises CompileError for a value that is
            malformed or not supported, or sizes that do not fit together.
        framed: Its graph takes sounds of so many frames, as the user says.
    """

    read: Callable[[Mapping[str, Any], int | None, int], Sound | None]
    framed: bool
