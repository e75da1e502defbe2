"""Vision towers whose patches lie in a strip: which graphs there are, and what these need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ...blocks.specs import specs_of, table_spec
from ...blocks.weights import Weight
from ...common.errors import CompileError
from ...common.profiles import Profile
from ...weights import encoder_roles as roles
from ...weights.spec import LinearSpec, TensorSource, VectorSpec
from ..asked import Asked
from ..sizes import patch_kernel
from .graph import build_strip
from .sizes import WINDOW, Form, StripSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class StripPlan:
    """A `TowerPlan` of such a tower.

    Attributes:
        config: Its sizes.
        capacity: Patches of an image.
        forms: The graphs, by what the names of their files end in.
    """

    config: StripSizes
    capacity: int
    forms: Mapping[str, Form]

    @property
    def ends(self) -> Sequence[str]:
        return tuple(self.forms)

    def other_end(self, end: str) -> None:
        return None

    def weights(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        config, tower = self.config, self.config.tower
        hidden, side = config.hidden, config["patch_size"]
        specs: list[LinearSpec | VectorSpec] = [patch_kernel(tower.tensors, (hidden, 3, side, side), profile)]
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
        tensors = config.tower.tensors
        found = [table_spec(roles.POSITIONS, tensors, (config.side**2, config.hidden))]
        if config.tower.resampled:
            found.append(table_spec(roles.QUERIES, tensors, (config["query_num"], config.width)))
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

    def lists(self) -> dict[Path, Any]:
        return {}


def strip_plan(asked: Asked, config: StripSizes) -> StripPlan:
    """The graphs of so many patches as `--vision` says.

    Raises:
        CompileError: They cannot be.
    """
    tower = config.tower
    capacity = asked.number(tower.capacity, "patches")
    asked.check(capacity * max(form.frames for form in tower.forms))
    whole = 1 if tower.resampled else WINDOW**2
    if capacity % whole:
        raise CompileError(
            f"--vision {asked.size}: the number of patches must be a multiple of {whole}, those of a token"
        )
    forms = {f"_{form.end}" if form.end else "": form for form in tower.forms}
    return StripPlan(config=config, capacity=capacity, forms=forms)
