"""What is particular to the graphs of a kind of vision towers, and what plans of several kinds share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry
from tcim_lite.hmm.weight_format import GROUP

from ..blocks.specs import specs_of
from ..blocks.weights import Weight
from ..common import encoder_roles as roles
from ..common.errors import CompileError
from ..common.packing import is_quantized
from ..common.profiles import Profile
from ..common.roles import Role
from ..common.weight_spec import LinearSpec, TensorSource, VectorSpec
from ..family import Tensors
from .options import CompileOptions

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


def asked_number(options: CompileOptions, usual: int, what: str) -> int:
    """Returns of how many `what` an image may be at most in graphs for any image, `usual` of them unless asked.

    Raises:
        CompileError: Something else was asked for, or a mask of windows, which such towers do not have as an input.
    """
    refuse_window_mask(options)
    asked = options.vision or DEFAULT
    if asked == DEFAULT:
        return usual
    if not re.fullmatch(r"\d{1,6}", asked):
        raise CompileError(
            f"--vision {asked}: graphs of this tower take any image of up to so many {what}; give their number, such "
            f"as --vision {usual}, or --vision alone for it"
        )
    return int(asked)


def refuse_window_mask(options: CompileOptions) -> None:
    """Raises CompileError if a mask of windows is asked for."""
    if options.vision_mask:
        raise CompileError("--vision-mask: the graphs of this tower take no mask of windows; leave it out")


def check_patches(options: CompileOptions, patches: int) -> None:
    """Raises CompileError if a graph would be for too many patches, or for none."""
    if not 0 < patches <= _MOST_PATCHES:
        raise CompileError(f"--vision {options.vision} makes {patches} patches, expected 1 to {_MOST_PATCHES}")


def patch_kernel(tensors: Mapping[Role, Tensors], shape: tuple[int, ...], profile: Profile) -> LinearSpec:
    """Returns the kernel of the patches as a matrix of shape[0] outputs; its inputs are padded to whole groups."""
    hidden, terms = shape[0], math.prod(shape[1:])
    padded = terms + -terms % GROUP if is_quantized(profile.body_format) else terms
    (kernel,) = specs_of([Weight(roles.PATCHES, (hidden,), terms, padded)], tensors, profile, None)
    assert isinstance(kernel, LinearSpec)
    return replace(kernel, tensor_shapes=(shape,))
