"""Vision towers whose patches lie in a grid: which graphs there are, and what these need."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry
from tcim_lite.hmm.weight_format import GROUP
from tcim_lite.image_grid import table_corners

from ...blocks import Deepstack
from ...blocks.merger import GatedMerger
from ...blocks.specs import specs_of, table_spec
from ...blocks.weights import Weight
from ...common.errors import CompileError
from ...common.package import vision_sizes
from ...common.profiles import Profile
from ...common.rope import Rope
from ...model_config import ModelConfig
from ...weights import encoder_roles as roles
from ...weights.spec import LinearSpec, TensorSource, VectorSpec
from ..asked import DEFAULT, Asked
from ..sizes import patch_kernel
from .graph import GridSpec, build_grid
from .sizes import GridSizes

_SIDE = 448  # pixels of a side, as the vendor compiles unless told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPlan:
    """A `TowerPlan` of such a tower.

    Attributes:
        config: Its sizes.
        graphs: By what the names of their files end in.
    """

    config: GridSizes
    graphs: Mapping[str, GridSpec]

    @property
    def ends(self) -> Sequence[str]:
        return tuple(self.graphs)

    def other_end(self, end: str) -> str | None:
        """Programs of the vendor open either of these names, and few look for both."""
        spec = self.graphs[end]
        if end or not spec.takes_image:
            return None
        height, width = self._pixels(spec)
        return f"_{width}x{height}x{self.config['temporal_patch_size']}"

    def weights(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        return _weights(self.config, profile)

    def tables(self) -> list[LinearSpec]:
        return [_positions(self.config)] if self.config.tower.learned else []

    def constants(self, tensors: TensorSource, dtype: str) -> dict[str, NDArray[Any]]:
        constants: dict[str, NDArray[Any]] = {name: part.astype(dtype) for name, part in _tables(self, tensors).items()}
        for spec in self.graphs.values():
            constants |= spec.constants(self.config)
        return constants

    def graph(self, end: str, profile: Profile, entries: Sequence[WeightEntry]) -> Graph:
        return build_grid(self.config, profile, entries, self.graphs[end])

    def message(self, end: str) -> dict[str, Any]:
        config, spec = self.config, self.graphs[end]
        message: dict[str, Any] = {
            "hidden_size": config.width,
            "patch_size": config["patch_size"],
            "spatial_merge_size": config["spatial_merge_size"],
            "temporal_patch_size": config["temporal_patch_size"],
        }
        if spec.cut:
            height, width = self._pixels(spec)
            message |= {"image_height": height, "image_width": width, "tokens": spec.tokens(config)}
        elif spec.patches is None:
            message |= {"tokens": spec.tokens(config), "num_position_embeddings": config["num_position_embeddings"]}
        elif config.tower.mean is not None:
            message |= {"image_mean": list(config.tower.mean), "image_std": list(config.tower.deviation)}
        if config.windowed:
            message["window_size"] = config["window_size"]
        return message

    def lists(self) -> dict[Path, Any]:
        if not self.config.tower.lists_sizes:
            return {}
        sizes = [
            dict(zip(("max_size_h", "max_size_w"), self._pixels(spec), strict=True)) for spec in self.graphs.values()
        ]
        facts = ("patch_size", "spatial_merge_size", "temporal_patch_size")
        # The first of the sizes is for all other images.
        found = {"buckets": sizes[1:], "fallback_bucket": sizes[0], **{key: self.config[key] for key in facts}}
        return {vision_sizes(self.config.tower.lists_sizes): found}

    def _pixels(self, spec: GridSpec) -> tuple[int, int]:
        """Height and width of the images."""
        assert spec.patches is not None
        height, width = (count * self.config["patch_size"] for count in spec.patches)
        return height, width


def grid_plan(asked: Asked, config: GridSizes, model: ModelConfig) -> GridPlan:
    """The graphs that `--vision` names.

    Raises:
        CompileError: They cannot be, or do not give what the language model takes.
    """
    layers = [index for index in range(model.num_layers) if Deepstack() in model.blocks(index)]
    if len(layers) != len(config.stacked):
        raise CompileError(
            f"vision_config: deepstack_visual_indexes names {len(config.stacked)} layers, but {len(layers)} layers of "
            "the language model take what they give"
        )
    if config.tower.takes == "gear" and "x" not in asked.size:
        asked.refuse_mask()
        if asked.size == DEFAULT:
            gears = list(config.tower.gears)
        elif re.fullmatch(r"\d{1,6}(,\d{1,6})*", asked.size):
            gears = [int(gear) for gear in asked.size.split(",")]
        else:
            raise CompileError(
                f"--vision {asked.size}: graphs of this tower take any image of up to so many tokens; give their "
                f"numbers, such as --vision {','.join(map(str, config.tower.gears))}, or --vision alone for these, or "
                "a size, such as 448x448, for images of this size"
            )
        specs = {f"_m{gear}": GridSpec(capacity=gear * config.merged) for gear in gears}
    else:
        if not config.windowed:
            asked.refuse_mask()
        specs = dict(_of_sizes(asked, config))
    for spec in specs.values():
        asked.check(spec.capacity)
    return GridPlan(config=config, graphs=specs)


def _of_sizes(asked: Asked, config: GridSizes) -> Iterator[tuple[str, GridSpec]]:
    """Graphs for images of one size each, by what the names of their files end in."""
    tower, side = config.tower, config["patch_size"]
    size, cut = asked.size, tower.takes == "cut"
    if cut and size == DEFAULT:
        size = ",".join(f"{height}x{width}" for height, width in tower.sizes)
    for one in size.split(",") if cut else [size]:
        height, width = _image_size(one, config)
        patches = (height // side, width // side)
        end = tower.file_end.format(height=height, width=width, frames=config["temporal_patch_size"])
        yield end, GridSpec(capacity=math.prod(patches), patches=patches, cut=cut, window_mask=asked.mask)


def _image_size(asked: str, config: GridSizes) -> tuple[int, int]:
    """Height and width in pixels."""
    if asked == DEFAULT:
        side = _SIDE // config.cell * config.cell or config.cell
        return side, side
    if not (found := re.fullmatch(r"(\d{1,5})x(\d{1,5})", asked)):
        raise CompileError(
            f"--vision {asked}: expected height x width of the images in pixels, such as --vision 448x448"
        )
    height, width = (int(side) for side in found.groups())
    if not height or not width or height % config.cell or width % config.cell:
        raise CompileError(
            f"--vision {asked}: both sides must be multiples of {config.cell}, the side of a token in pixels"
        )
    return height, width


def _weights(config: GridSizes, profile: Profile) -> list[LinearSpec | VectorSpec]:
    """All weights in the order of use, but the positions."""
    tensors, hidden, side = config.tower.tensors, config.hidden, config["patch_size"]
    frames = (config["temporal_patch_size"],) if config.tower.framed else ()
    kernel = (hidden, 3, *frames, side, side)
    specs: list[LinearSpec | VectorSpec] = [patch_kernel(tensors, kernel, profile)]
    if config.tower.patch_bias:
        specs += specs_of([Weight(roles.PATCHES_BIAS, (hidden,))], tensors, profile, None)
    for layer in range(config["depth"]):
        specs += specs_of((w for block in config.layer(layer) for w in block.weights()), tensors, profile, layer)
    if config.tower.last_norm:
        last = config.norm.weights(hidden, roles.LAST_NORM, roles.LAST_NORM_BIAS)
        specs += specs_of(last, tensors, profile, None)
    for index in range(len(config.stacked)):
        specs += specs_of(config.merger(stacked=True).weights(), tensors, profile, index)
    merger = config.merger()
    if isinstance(merger, GatedMerger):
        (join,) = specs_of([merger.join], tensors, profile, None)
        assert isinstance(join, LinearSpec)
        side = config["spatial_merge_size"]
        specs.append(replace(join, tensor_shapes=((config.width, hidden, side, side),)))
    return specs + specs_of(merger.weights(), tensors, profile, None)


def _positions(config: GridSizes) -> LinearSpec:
    """The learned positions."""
    shape = (config["num_position_embeddings"], config.hidden)
    return table_spec(roles.POSITIONS, config.tower.tensors, shape)


def _tables(plan: GridPlan, tensors: TensorSource) -> dict[str, NDArray[Any]]:
    """What is computed in the tensors' dtype: rotations, and positions by patch or as they are."""
    config = plan.config
    merge = config["spatial_merge_size"]
    sides = [max(spec.patches) if spec.patches else merge * spec.tokens(config) for spec in plan.graphs.values()]
    rope = Rope(head_dim=config.head_dim // 2, theta=config["rope_theta"]).table(max(sides))
    scale = np.float32(1 / math.sqrt(config.head_dim))
    found = dict(zip(roles.ROPE, (rope.cos, rope.sin, rope.cos * scale, rope.sin * scale), strict=True))
    if not any(spec.takes_image for spec in plan.graphs.values()):
        if rest := -config.patch_inputs % GROUP:
            found[roles.ZEROS] = np.zeros((1, 1, rest), np.float32)
    elif config.tower.mean is not None:
        means, deviations = (
            np.repeat(np.array(colours, np.float32), config["temporal_patch_size"]).reshape(1, -1, 1, 1)
            for colours in (config.tower.mean, config.tower.deviation)
        )
        found |= {roles.COLOUR_SHIFT: -255 * means, roles.COLOUR_SCALE: 1 / (255 * deviations)}
    if any(spec.patches is None for spec in plan.graphs.values()):
        found[roles.ONE] = np.ones((1, 1, 1, 1), np.float32)
    if config.tower.learned:
        spec = _positions(config)
        table = tensors.matrix(spec.tensors[0], (spec.shape[0], spec.shape[1])).read(0, spec.shape[0])
        for graph in plan.graphs.values():
            if graph.patches is not None:
                side = math.isqrt(len(table))
                ids, counts = table_corners(*graph.patches, merge, side, config.tower.centred)
                table = sum(counts[index][:, None] * table[ids[index]] for index in range(4))
        found[roles.POSITIONS.name] = table
    return found
