"""The graph of a tower whose patches lie in a grid: patches, layers, and what makes tokens of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry
from tcim_lite.image_grid import patch_places, windows_of

from ...blocks.encoder import EncoderPart, Windows
from ...blocks.merger import GatedMerger, Merger
from ...common.profiles import Profile
from ...graphs.encoder_builder import EncoderBuilder
from ...graphs.values import Ref
from ...weights import encoder_roles as roles
from .sizes import GridSizes

# Computed for the image size of the graph: rows and columns of the patches, and which windows come first.
ROWS, COLUMNS, WINDOW_ORDER = "encoder.patch_rows", "encoder.patch_columns", "encoder.window_order"
OUTPUT, STACK_OUTPUT = "image_embeds", "deepstack_feature_{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSpec:
    """Which graph of a tower.

    Attributes:
        patches: Rows and columns of an image, or None for any image of up to `capacity` patches.
        capacity: Of the graph.
        cut: It takes the patches of the image, in the order of tokens, as gears do.
        window_mask: What layers with windows see is an input, [1, patches, patches].
    """

    capacity: int
    patches: tuple[int, int] | None = None
    cut: bool = False
    window_mask: bool = False

    @property
    def takes_image(self) -> bool:
        """Whether it takes an image as it is."""
        return self.patches is not None and not self.cut

    @property
    def places(self) -> tuple[str, str]:
        """Names of the rows and the columns of its patches, which graphs of other sizes may be beside."""
        end = f".{'x'.join(map(str, self.patches))}" if self.patches is not None and self.cut else ""
        return ROWS + end, COLUMNS + end

    def tokens(self, config: GridSizes) -> int:
        """Of the language model."""
        return self.capacity // config.merged

    def constants(self, config: GridSizes) -> dict[str, NDArray[np.int32]]:
        """What is computed for the image size."""
        if self.patches is None:
            return {}
        found = dict(zip(self.places, patch_places(*self.patches, config["spatial_merge_size"]), strict=True))
        if config.windowed and not self.window_mask:
            found[WINDOW_ORDER] = np.concatenate([order for order, _ in self._windows(config)])
        return {name: np.ascontiguousarray(numbers, np.int32) for name, numbers in found.items()}

    def windows(self, config: GridSizes) -> list[Windows]:
        """The windows in the order of `constants`, by size."""
        found, start = [], 0
        for order, tokens in self._windows(config):
            each = tokens * config.merged
            found.append(Windows(start, len(order) // tokens, each))
            start += len(order) * config.merged
        return found

    def _windows(self, config: GridSizes) -> list[tuple[NDArray[np.int32], int]]:
        """For each size of windows, the places of their tokens in the program's order, and how many each has."""
        assert self.patches is not None
        merge = config["spatial_merge_size"]
        rows, columns = (extent // merge for extent in self.patches)
        by_size: dict[int, list[NDArray[np.int32]]] = {}
        first = 0
        for window in windows_of(rows, columns, config.window_side):
            by_size.setdefault(len(window), []).append(np.arange(first, first + len(window), dtype=np.int32))
            first += len(window)
        return [(np.concatenate(places), size) for size, places in by_size.items()]


def build_grid(config: GridSizes, profile: Profile, weights: Sequence[WeightEntry], spec: GridSpec) -> Graph:
    """Returns the graph `spec` describes."""
    builder = EncoderBuilder("visual", profile.tensor_dtype, weights)
    order = None
    if spec.patches is None:
        x, part = _any_image(builder, config, spec.capacity)
    elif spec.cut:
        x, part = _cut(builder, config, spec)
    else:
        x, part, order = _one_size(builder, config, spec)
    names = [STACK_OUTPUT.format(index=index) for index in range(len(config.stacked))]
    found: list[Ref] = []
    # The vendor's programs put features of several images side by side, or count the rows of those of one.
    leading = () if config.windowed or spec.cut else (1,)
    places = None if order is None else builder.order("encoder.window_places", order)

    def merge(merger: Merger | GatedMerger, name: str, here: str, layer: int | None = None) -> Ref:
        """Tokens of the language model, in the order of the image."""
        if places is None:
            return merger.lower(part, x, leading, here, name, layer)
        return builder.gather(name, merger.lower(part, x, leading, here, f"{here}.in_windows", layer), places, 0)

    for layer in range(config["depth"]):
        for block in config.layer(layer):
            x = block.lower(part, x, layer)
        if layer in config.stacked:
            index = config.stacked.index(layer)
            found.append(merge(config.merger(stacked=True), names[len(found)], f"encoder.stacks.{index}", index))
    if config.tower.last_norm:
        last = (roles.LAST_NORM, roles.LAST_NORM_BIAS)
        x = config.norm.lower(builder, "encoder.last_normed", x, last, None)
    found.insert(0, merge(config.merger(), OUTPUT, "encoder.merger"))
    return builder.build(dict.fromkeys(found))


def _one_size(builder: EncoderBuilder, config: GridSizes, spec: GridSpec) -> tuple[Ref, EncoderPart, Ref | None]:
    """Patches of an image of one size [1, T, H], and the windows' order [tokens] if there are windows."""
    assert spec.patches is not None
    rows, columns = spec.patches
    side, merge, frames = (config[key] for key in ("patch_size", "spatial_merge_size", "temporal_patch_size"))
    hidden = config.hidden
    planes_of = (3, frames) if config.tower.framed else (1, 3)
    shape = (1, *planes_of, rows * side, columns * side)
    image = builder.input("image", shape, aliases=["pixel_values"])
    window_index = window_mask = None
    tokens = spec.tokens(config)
    if config.windowed:
        window_index = builder.input("window_index", (tokens,), "int32")
        if spec.window_mask:
            window_mask = builder.input("window_mask", (1, spec.capacity, spec.capacity))
    planes = builder.reshape("encoder.planes", image, (1, 3 * frames, rows * side, columns * side))
    if config.tower.mean is not None:
        planes = builder.repeated("Add", "encoder.planes_centred", planes, builder.weight(roles.COLOUR_SHIFT))
        planes = builder.repeated("Mul", "encoder.planes_scaled", planes, builder.weight(roles.COLOUR_SCALE))
    bias = roles.PATCHES_BIAS.name if config.tower.patch_bias else None
    x = builder.patches("encoder.patch_planes", planes, roles.PATCHES.name, bias, side)
    x = builder.reshape("encoder.cells", x, (hidden, rows // merge, merge, columns // merge, merge))
    x = builder.transpose("encoder.cells_turned", x, (1, 3, 2, 4, 0))
    x = builder.reshape("encoder.patches", x, (1, spec.capacity, hidden))
    if config.tower.learned:
        x = builder.repeated("Add", "encoder.placed", x, builder.weight(roles.POSITIONS.name))
    order = window_index
    if window_index is not None and not spec.window_mask:
        order = builder.gather("encoder.window_tokens", window_index, builder.weight(WINDOW_ORDER), 0)

    def ordered(name: str, rows_of: Ref) -> Ref:
        """Rows of patches, token by token as windows have them."""
        if order is None:
            return rows_of
        width = rows_of.shape[-1]
        wide = builder.reshape(f"{name}.tokens", rows_of, (1, tokens, config.merged * width))
        return builder.reshape(f"{name}.ordered", builder.gather(f"{name}.chosen", wide, order, 1), rows_of.shape)

    places = _places(builder, spec)
    tables = [ordered(name, table) for name, table in zip(roles.ROPE, _tables(builder, places), strict=True)]
    part = EncoderPart(
        builder=builder,
        tables=tables,
        windows=[] if spec.window_mask or not config.windowed else spec.windows(config),
        window_mask=window_mask,
    )
    return ordered("encoder.patches", x), part, order


def _cut(builder: EncoderBuilder, config: GridSizes, spec: GridSpec) -> tuple[Ref, EncoderPart]:
    """Patches of an image of one size [1, T, H], cut by the program."""
    assert not config.tower.learned
    assert not config.windowed
    patches = builder.input("pixel_values", (spec.capacity, config.patch_inputs))
    x = _embedded(builder, config, builder.reshape("encoder.pixels", patches, (1, *patches.shape)))
    return x, EncoderPart(builder=builder, tables=_tables(builder, _places(builder, spec)))


def _embedded(builder: EncoderBuilder, config: GridSizes, patches: Ref) -> Ref:
    """[1, T, numbers of a patch] -> [1, T, H]."""
    if rest := builder.weight(roles.PATCHES.name).shape[1] - config.patch_inputs:
        zeros = builder.expand("encoder.padding", builder.weight(roles.ZEROS), (*patches.shape[:2], rest))
        patches = builder.concat("encoder.pixels_padded", (patches, zeros), 2)
    bias = roles.PATCHES_BIAS.name if config.tower.patch_bias else None
    return builder.linear("encoder.patches", patches, roles.PATCHES.name, bias)


def _places(builder: EncoderBuilder, spec: GridSpec) -> tuple[Ref, Ref]:
    rows, columns = (builder.weight(name) for name in spec.places)
    return rows, columns


def _any_image(builder: EncoderBuilder, config: GridSizes, capacity: int) -> tuple[Ref, EncoderPart]:
    """Patches of any image of up to `capacity` [1, T, H]; what lies behind them is masked."""
    patches = builder.input("pixel_values", (1, capacity, config.patch_inputs))
    ids = builder.input("position_ids", (4, capacity), "int32")
    counts = builder.input("position_weights", (4, capacity))
    places = builder.input("rotary_position_ids", (2, capacity), "int32")
    mask = builder.input("attention_mask", (1, 1, 1, capacity))
    x = _embedded(builder, config, patches)
    hidden = config.hidden
    # [T, 1, 4] x [T, 4, H]: the four positions around each patch, by what they count
    by_patch = builder.reshape(
        "encoder.corners", builder.transpose("encoder.corners_turned", ids, (1, 0)), (4 * capacity,)
    )
    table = builder.gather("encoder.corner_rows", builder.weight(roles.POSITIONS.name), by_patch, 0)
    shares = builder.reshape(
        "encoder.shares", builder.transpose("encoder.shares_turned", counts, (1, 0)), (capacity, 1, 4)
    )
    corners = builder.reshape("encoder.corners_by_patch", table, (capacity, 4, hidden))
    positions = builder.mat_mul("encoder.position", shares, corners)
    x = builder.add("encoder.placed", x, builder.reshape("encoder.positions_flat", positions, x.shape))
    rows, columns = (
        builder.reshape(
            f"encoder.{name}", builder.part(f"encoder.{name}_part", places, 0, index, index + 1), (capacity,)
        )
        for index, name in enumerate(("rows", "columns"))
    )
    return x, EncoderPart(builder=builder, tables=_tables(builder, (rows, columns)), key_mask=mask)


def _tables(builder: EncoderBuilder, places: tuple[Ref, Ref]) -> list[Ref]:
    """Rows of each table of `roles.ROPE`, [1, T, head_dim / 2]: one half by the row of a patch, one by its column."""
    found = []
    for table in roles.ROPE:
        halves = [
            builder.gather(f"{table}.{axis}", builder.weight(table), where, 0)
            for axis, where in zip(("rows", "columns"), places, strict=True)
        ]
        beside = builder.concat(f"{table}.beside", halves, 1)
        found.append(builder.reshape(f"{table}.of_patches", beside, (1, *beside.shape)))
    return found
