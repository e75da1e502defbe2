"""The host side of a vision tower: which graph sees an image, and the inputs around its pixels.

Qwen3-VL and Qwen2.5-VL have one graph, NAME_visual.hmm, for images of one size; the latter takes the order of its
windows, and may take a mask of them. That of PaddleOCR-VL is NAME_visual_WxH.hmm, W and H being its width and height.
Qwen3.5 has such a graph, or a graph NAME_visual_mN.hmm, a gear, for any image of up to N tokens. Qwen2-VL and GLM-OCR
have a graph for each of some sizes, which takes the patches of an image.
"""

from __future__ import annotations

import glob
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tcim_lite.runtime as tcim
from tcim_lite.image_grid import merge_major, patch_places, table_corners, windows_of

from .graph_file import Load, modules_on
from .masks import HIDDEN

OUTSIDE = -32768.0  # what the vendor's window masks have
_LEAST_TOKENS = 64  # of an image for gears: small ones are made larger


def window_index(rows: int, columns: int, side: int) -> NDArray[np.int32]:
    """Tokens of an image, window by window, each of side x side tokens or the rest of the image; [rows * columns]."""
    return np.concatenate(windows_of(rows, columns, side))


def window_mask(rows: int, columns: int, side: int, merge: int) -> NDArray[np.float16]:
    """[1, S, S] of the S patches in the order of `window_index`: 0 within a window, -32768 outside."""
    numbers = np.concatenate(
        [np.full(len(window) * merge**2, index) for index, window in enumerate(windows_of(rows, columns, side))]
    )
    return np.where(numbers[:, None] == numbers, np.float16(0), np.float16(OUTSIDE))[None]


def patches_of(pixels: NDArray[Any], patch: int, merge: int, frames: int, dtype: Any = np.float16) -> NDArray[Any]:
    """[3, height, width] -> [patches, 3 * frames * patch * patch], merge-major; one image is all frames."""
    colours, height, width = pixels.shape
    cells = pixels.reshape(colours, height // patch, patch, width // patch, patch).transpose(0, 2, 4, 1, 3)
    rows = merge_major(cells, merge).transpose(3, 0, 1, 2)[:, :, None]
    shape = (rows.shape[0], colours, frames, patch, patch)
    return np.ascontiguousarray(np.broadcast_to(rows, shape), dtype).reshape(rows.shape[0], -1)


def run_tower(module: tcim.Module, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Runs a graph with inputs by name, in whatever dtype; returns all its outputs."""
    for name, values in inputs.items():
        module.set_input(name, np.ascontiguousarray(values, module.get_input_info(name).dtype))
    module.run()
    module.sync()
    outputs = [module.get_output_name(index) for index in range(module.get_num_outputs())]
    return [module.get_output(name).numpy() for name in outputs]


def gear_inputs(rows: int, columns: int, capacity: int, merge: int, side: int) -> dict[str, NDArray[Any]]:
    """What a gear takes beside the patches of an image of rows x columns of them, padded on the right.

    Args:
        rows: Of patches.
        columns: Likewise.
        capacity: Patches of the gear.
        merge: Patches of a token's side.
        side: Of the table of learned positions.

    Raises:
        ValueError: More patches than the gear takes.
    """
    count = rows * columns
    if count > capacity:
        raise ValueError(f"an image of {rows} x {columns} patches has {count}, the graph takes {capacity}")

    def padded(values: NDArray[Any]) -> NDArray[Any]:
        return np.pad(values, ((0, 0), (0, capacity - count)))

    ids, weights = table_corners(rows, columns, merge, side)
    return {
        "position_ids": padded(ids),
        "position_weights": padded(weights),
        "rotary_position_ids": padded(patch_places(rows, columns, merge)),
        "attention_mask": np.where(np.arange(capacity) < count, np.float16(0), np.float16(HIDDEN))[None, None, None],
    }


class VisionTower:
    """The vision graphs of a package.

    Args:
        folder: Of the package.
        name: Prefix of its files.
        weights: A `WeightManager`; None for one of device 0.
        load: Opens a graph in place of that. With `GraphFile` nothing is seen, but sizes are known.

    Attributes:
        gears: Graphs by the most tokens they take; one for towers that take one size.
        sizes: Graphs by the height and width of images, for towers that take the patches of images of some sizes.
        cell: Pixels of a token's side.

    Raises:
        FileNotFoundError: The package has no vision graph.
        ValueError: A graph that `tcim-lite compile --vision` has not made.
    """

    def __init__(self, folder: Path, name: str, weights: Any = None, *, load: Load | None = None):
        pattern = re.compile(rf"{re.escape(name)}_visual(_m\d+|_\d+x\d+(x\d+)?)?\.hmm")
        paths = sorted(path for path in Path(folder).iterdir() if pattern.fullmatch(path.name))
        if (whole := Path(folder) / f"{name}_visual.hmm") in paths:
            paths = [whole]  # another name of it says the size
        if not paths and (strips := sorted(Path(folder).glob(f"{glob.escape(name)}_visual_*x.hmm"))):
            raise FileNotFoundError(
                f"{folder} has vision graphs {', '.join(path.name for path in strips)}, of MiniCPM-V; this class feeds "
                "those of Qwen, PaddleOCR-VL and GLM-OCR: set the inputs that docs/vision.md lists"
            )
        if not paths:
            raise FileNotFoundError(
                f"{folder} has no vision graph {name}_visual.hmm; compile the whole checkpoint with --vision"
            )
        load = load or modules_on(tcim.WeightManager(0) if weights is None else weights)
        modules = [load(path) for path in paths]
        try:
            self._facts = json.loads(modules[0].get_custom_msg())
            self.patch, self.merge = int(self._facts["patch_size"]), int(self._facts["spatial_merge_size"])
            self._frames = int(self._facts["temporal_patch_size"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{paths[0]} does not say its patch size in its custom_msg; compile it with "
                "`tcim-lite compile CHECKPOINT --vision`"
            ) from None
        self.cell = self.patch * self.merge
        facts = [json.loads(module.get_custom_msg()) for module in modules]
        self.sizes: dict[tuple[int, int], tcim.Module] = {
            (own["image_height"], own["image_width"]): module
            for own, module in zip(facts, modules, strict=True)
            if "image_height" in own
        }
        by_tokens = {self._tokens(module): module for module in modules}
        self.gears: dict[int, tcim.Module] = dict(sorted(by_tokens.items()))

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the images, where there is only one; None for gears and for several sizes."""
        if self.sizes:
            return next(iter(self.sizes)) if len(self.sizes) == 1 else None
        shape = self._first.get_input_info(self._first.get_input_name(0)).shape
        return None if len(shape) == 3 else (shape[-2], shape[-1])

    def fitting(self, height: int, width: int) -> tuple[int, int]:
        """The size to resize an image to: whole tokens, as many as a graph takes, the sides in proportion.

        Of several sizes it is the one of the most similar proportions and then of the most similar height.
        """
        if self.size is not None:
            return self.size
        if self.sizes:

            def unlike(size: tuple[int, int]) -> tuple[float, float]:
                return abs(math.log(size[0] * width / (size[1] * height))), abs(math.log(size[0] / height))

            return min(self.sizes, key=unlike)
        most = max(self.gears)
        least = min(_LEAST_TOKENS, most)
        rows, columns = (max(1, round(side / self.cell)) for side in (height, width))
        if rows * columns < least:
            scale = math.sqrt(least / (height * width))
            rows, columns = (math.ceil(side * scale) for side in (height, width))
        if rows * columns > most:
            scale = math.sqrt(most / (height * width))
            rows, columns = (max(1, math.floor(side * scale)) for side in (height, width))
        return min(rows, most) * self.cell, min(columns, most) * self.cell

    def see(self, pixels: NDArray[Any]) -> list[NDArray[Any]]:
        """Features [tokens, H] of an image [3, height, width], then those for each deepstack input.

        Its numbers are those of the checkpoint's processor, whatever the graph takes.

        Raises:
            ValueError: Sides that are no whole tokens or not those of the graph, or an image of more tokens than the
                largest gear takes.
        """
        _, height, width = pixels.shape
        if height % self.cell or width % self.cell:
            raise ValueError(f"an image of {height} x {width} pixels: both sides must be multiples of {self.cell}")
        rows, columns = height // self.patch, width // self.patch
        tokens = rows * columns // self.merge**2
        if self.sizes:
            if (height, width) not in self.sizes:
                known = ", ".join(f"{known_height} x {known_width}" for known_height, known_width in self.sizes)
                raise ValueError(f"an image of {height} x {width} pixels: the graphs take {known}")
            module = self.sizes[height, width]
            inputs = {module.get_input_name(0): self._patches(module, pixels)}
        elif self.size is None:
            module = self._gear(tokens)
            capacity = module.get_input_info("pixel_values").shape[1]
            patches = self._patches(module, pixels)
            side = math.isqrt(int(self._facts["num_position_embeddings"]))
            inputs = gear_inputs(rows, columns, capacity, self.merge, side)
            inputs["pixel_values"] = np.pad(patches, ((0, capacity - len(patches)), (0, 0)))[None]
        elif self.size != (height, width):
            raise ValueError(f"an image of {height} x {width} pixels: the graph takes {self.size[0]} x {self.size[1]}")
        else:
            module = self._first
            name = module.get_input_name(0)
            frames = np.repeat(self._colours(pixels)[:, None], self._frames, axis=1)
            inputs = {name: frames.reshape(module.get_input_info(name).shape)}
            inputs |= self._windows(module, rows // self.merge, columns // self.merge)
        return [features.reshape(-1, features.shape[-1])[:tokens] for features in run_tower(module, inputs)]

    def _patches(self, module: tcim.Module, pixels: NDArray[Any]) -> NDArray[Any]:
        dtype = module.get_input_info(module.get_input_name(0)).dtype
        return patches_of(pixels, self.patch, self.merge, self._frames, dtype)

    def _colours(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """The numbers of a processor as colours of 0 to 255, where a graph for images of one size takes these."""
        if "image_mean" not in self._facts:
            return pixels
        mean, deviation = (np.array(self._facts[key], np.float32)[:, None, None] for key in ("image_mean", "image_std"))
        return (pixels.astype(np.float32) * deviation + mean) * np.float32(255)

    @property
    def _first(self) -> tcim.Module:
        return next(iter(self.gears.values()))

    def _tokens(self, module: tcim.Module) -> int:
        return int(module.get_output_info(module.get_output_name(0)).shape[-2])

    def _gear(self, tokens: int) -> tcim.Module:
        for most, module in self.gears.items():
            if tokens <= most:
                return module
        raise ValueError(
            f"an image of {tokens} tokens is more than the largest graph takes, {max(self.gears)}; make it smaller, or "
            f"compile with --vision {tokens}"
        )

    def _windows(self, module: tcim.Module, rows: int, columns: int) -> dict[str, NDArray[Any]]:
        """Inputs 1 and 2 of a graph with windows, if it has them."""
        count = module.get_num_inputs()
        if count == 1:
            return {}
        side = max(1, int(self._facts["window_size"]) // self.cell)
        found: dict[str, NDArray[Any]] = {module.get_input_name(1): window_index(rows, columns, side)}
        if count == 3:
            found[module.get_input_name(2)] = window_mask(rows, columns, side, self.merge)
        return found
