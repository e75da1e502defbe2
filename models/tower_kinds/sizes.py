"""What kinds of vision towers share: sizes of a tower, and its first weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tcim_lite.hmm.weight_format import GROUP

from ..blocks.specs import specs_of
from ..blocks.weights import Weight
from ..common.config_keys import KeyValues
from ..common.profiles import Profile
from ..family import Tensors
from ..weights import encoder_roles as roles
from ..weights.packing import is_quantized
from ..weights.roles import Role
from ..weights.spec import LinearSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerSizes(KeyValues):
    """Sizes of a tower: the values of its keys, and the width of the language model."""

    width: int

    @property
    def hidden(self) -> int:
        """Width of a patch between the layers."""
        return int(self["hidden_size"])

    @property
    def patch_inputs(self) -> int:
        """Numbers of a patch."""
        return int(3 * self["patch_size"] ** 2)


def patch_kernel(tensors: Mapping[Role, Tensors], shape: tuple[int, ...], profile: Profile) -> LinearSpec:
    """Returns the kernel of the patches as a matrix of shape[0] outputs; its inputs are padded to whole groups."""
    hidden, terms = shape[0], math.prod(shape[1:])
    padded = terms + -terms % GROUP if is_quantized(profile.body_format) else terms
    (kernel,) = specs_of([Weight(roles.PATCHES, (hidden,), terms, padded)], tensors, profile, None)
    assert isinstance(kernel, LinearSpec)
    return replace(kernel, tensor_shapes=(shape,))
