"""Vision towers whose patches lie in a strip: which graphs there are, and what these need."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry
from tcim_lite.hmm.weight_format import GROUP

from ..blocks.weights import Weight
from ..common import encoder_roles as roles
from ..common.errors import CompileError
from ..common.packing import is_quantized
from ..common.profiles import Profile
from ..common.roles import Role
from ..common.weight_spec import LinearSpec, TensorSource, VectorSpec
from ..strip_tower import WINDOW, Form, StripConfig
from .options import CompileOptions
from .strip_graph import build_strip
from .tower_plan import DEFAULT, check_patches
from .weights import specs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StripPlan:
    """A `TowerPlan` of such a tower.

    Attributes:
        config: Its sizes.
        capacity: Patches of an image.
        forms: The graphs, by what the names of their files end in.
    """

    config: StripConfig
    capacity: int
    forms: Mapping[str, Form]

    @property
    def ends(self) -> Sequence[str]:
        return tuple(self.forms)

    def weights(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        config, tower = self.config, self.config.tower
        hidden, terms, side = config.hidden, config.patch_inputs, config["patch_size"]
        padded = -(-terms // GROUP) * GROUP if is_quantized(profile.body_format) else terms
        (kernel,) = specs_of([Weight(roles.PATCHES, (hidden,), terms, padded)], tower.tensors, profile, None)
        assert isinstance(kernel, LinearSpec)
        specs: list[LinearSpec | VectorSpec] = [replace(kernel, tensor_shapes=((hidden, 3, side, side),))]
        specs += specs_of([Weight(roles.PATCHES_BIAS, (hidden,))], tower.tensors, profile, None)
        for layer in range(config["num_hidden_layers"]):
            blocks = (weight for block in config.layer for weight in block.weights())
            specs += specs_of(blocks, tower.tensors, profile, layer)
        if tower.window_tensors:
            attention, merger = config.windows
            # One more layer behind the last.
            specs += specs_of(attention.weights(), tower.window_tensors, profile, config["num_hidden_layers"])
            specs += specs_of(merger.weights(), tower.tensors, profile, 0)
        last = config.norm.weights(hidden, roles.LAST_NORM, roles.LAST_NORM_BIAS)
        end = config.resampler.weights() if tower.resampled else config.merger.weights()
        return [*specs, *specs_of([*last, *end], tower.tensors, profile, None)]

    def tables(self) -> list[LinearSpec]:
        config = self.config
        found = [self._table(roles.POSITIONS, config.side**2, config.hidden)]
        if config.tower.resampled:
            found.append(self._table(roles.QUERIES, config["query_num"], config.width))
        return found

    def constants(self, tensors: TensorSource, dtype: str) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {roles.ONE: np.ones((1, 1, 1, 1), dtype)}
        for spec in self.tables():
            shape = spec.shape[0], spec.shape[1]
            table = tensors.matrix(spec.tensors[0], shape).read(0, shape[0]).astype(dtype)
            found[spec.role.name] = table[None] if spec.role == roles.QUERIES else table
        return found

    def graph(self, end: str, profile: Profile, entries: Sequence[WeightEntry]) -> Graph:
        return build_strip(self.config, profile, entries, self.forms[end], self.capacity)

    def message(self, end: str) -> dict[str, Any]:
        config, form = self.config, self.forms[end]
        return {
            "hidden_size": config.width,
            "patch_size": config["patch_size"],
            "patches": self.capacity,
            "frames": form.frames,
            "positions_per_side": config.side,
            "tokens": config.tokens(form, self.capacity),
        }

    def _table(self, role: Role, rows: int, width: int) -> LinearSpec:
        """A table as a matrix."""
        shape = (rows, width)
        names = self.config.tower.tensors[role].names
        return LinearSpec(
            role=role, layer=None, format="linear_f16", shape=shape, tensors=names, tensor_shapes=(shape,)
        )


def strip_plan(options: CompileOptions, config: StripConfig) -> StripPlan:
    """The graphs of so many patches as `--vision` says.

    Raises:
        CompileError: They cannot be.
    """
    asked, tower = options.vision or DEFAULT, config.tower
    if options.vision_mask:
        raise CompileError("--vision-mask: this tower has no such windows; leave it out")
    if asked != DEFAULT and not re.fullmatch(r"\d{1,6}", asked):
        raise CompileError(
            f"--vision {asked}: graphs of this tower take any image of up to so many patches; give their number, such "
            f"as --vision {tower.capacity}, or --vision alone for it"
        )
    capacity = tower.capacity if asked == DEFAULT else int(asked)
    check_patches(asked, capacity * max(form.frames for form in tower.forms))
    whole = 1 if tower.resampled else WINDOW**2
    if capacity % whole:
        raise CompileError(f"--vision {asked}: the number of patches must be a multiple of {whole}, those of a token")
    return StripPlan(config=config, capacity=capacity, forms={f"_{form.end}": form for form in tower.forms})
