"""Towers of MiniCPM-V: a large image is seen as a whole and in slices, each a strip of patches.

The rule that cuts is that of the model's processor: slices of about `scale_resolution` pixels a side, in the grid whose
proportions are nearest to those of the image.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.image_grid import merge_major

from ..graph_file import Load
from ..masks import HIDDEN
from ..media import Prepared
from ..mixed_prompt import Features
from ..vision import run_tower
from .picture import ImageError, normalised
from .reader import Checkpoint

if TYPE_CHECKING:
    from PIL import Image

_WINDOW = 2  # patches of a window's side
# Tags: their names in the tokenizer's config (4.6) and in the processor's (4.5), and what they usually are.
_TAGS = {
    "image": (("image_start_token", "im_start", "<image>"), ("image_end_token", "im_end", "</image>")),
    "slice": (("slice_start_token", "slice_start", "<slice>"), ("slice_end_token", "slice_end", "</slice>")),
    "id": (("image_id_start_token", "im_id_start", "<image_id>"), ("image_id_end_token", "im_id_end", "</image_id>")),
}


class StripReader:
    """A `Reader` over NAME_visual_16x.hmm or _4x.hmm of MiniCPM-V 4.6, or _1x.hmm of 4.5.

    Args:
        folder: Of the package.
        name: Prefix of its files.
        load: Opens the graph.
        checkpoint: The package's configs.

    Raises:
        FileNotFoundError: The package lacks the graph that its processor asks for.
        ImageError: The configs lack something, or the graph was not made by `tcim-lite compile --vision`.
        TcimError: The graph cannot be loaded.
    """

    sees_itself = False

    def __init__(self, folder: Path, name: str, load: Load, checkpoint: Checkpoint):
        known = checkpoint.processor
        self._resampled = checkpoint.config.get("model_type") == "minicpmv"
        mode = "1x" if self._resampled else str(known.get("downsample_mode", "16x"))
        path = folder / f"{name}_visual_{mode}.hmm"
        if not path.is_file():
            raise FileNotFoundError(f"there is no {path.name}; compile the whole checkpoint with --vision")
        self._module = load(path)
        try:
            facts = json.loads(self._module.get_custom_msg())
            self._patch, self._capacity = int(facts["patch_size"]), int(facts["patches"])
            self._side, self._width = int(facts["positions_per_side"]), int(facts["hidden_size"])
            self._resolution = int(known.get("scale_resolution", 448))
            self._most = int(known.get("max_slice_nums", 9)) if known.get("slice_mode", True) else 1
            self._queries = int(facts["tokens"])
        except (ValueError, KeyError, TypeError):
            raise ImageError(
                f"{path} or preprocessor_config.json does not say how images are cut; compile it with `tcim-lite "
                "compile CHECKPOINT --vision`"
            ) from None
        # Windows are merged once or twice, in squares of patches with sides of 2 or 4.
        self._rounds = {"16x": 2, "4x": 1}.get(mode, 0)
        keys = ("norm_mean", "norm_std") if "norm_mean" in known else ("image_mean", "image_std")
        self._colours = checkpoint.colours(keys)
        own = checkpoint.tokenizer
        extra = own.get("extra_special_tokens")
        own = {**own, **(extra if isinstance(extra, dict) else {})}
        self._tags = {
            what: tuple(_text(own.get(new) or known.get(old) or usual) for new, old, usual in names)
            for what, names in _TAGS.items()
        }
        self._numbers = bool(known.get("use_image_id", True))
        self.writes_marks = self._resampled
        if self._resampled:
            self._text = str(known.get("unk", "<unk>"))
            self.placeholder, self.mark = checkpoint.id_of(self._text), "(<image>./</image>)"
        else:
            self.placeholder, self.mark = checkpoint.token("image_token_id")
            self._text = self.mark
        self.stand_in = self.placeholder

    @property
    def most_tokens(self) -> int:
        slices = 1 + (self._most if self._most > 1 else 0)
        return slices * (self._queries if self._resampled else self._capacity // _WINDOW ** (2 * self._rounds))

    def prepare(self, image: Image.Image) -> Prepared:
        whole, grid, part = self._cut(image.height, image.width)
        strips = [normalised(image, whole, *self._colours)]
        if grid is not None:
            cells = normalised(image, (part[0] * grid[0], part[1] * grid[1]), *self._colours)
            cells = cells.reshape(3, grid[0], part[0], grid[1], part[1]).transpose(1, 3, 0, 2, 4)
            strips += list(cells.reshape(-1, 3, *part))
        counts = [self._tokens(*strip.shape[1:]) for strip in strips]
        if max(size := strip.shape[1] * strip.shape[2] // self._patch**2 for strip in strips) > self._capacity:
            raise ImageError(
                f"a slice of an image has {size} patches, the graph takes {self._capacity}; compile with --vision "
                f"{size} or more"
            )
        texts = [self._text * count for count in counts]
        text = self._tags["image"][0] + texts[0] + self._tags["image"][1]
        if grid is not None:
            begin, end = self._tags["slice"]
            rows = (texts[1 + row * grid[1] : 1 + (row + 1) * grid[1]] for row in range(grid[0]))
            text += "\n".join("".join(f"{begin}{each}{end}" for each in row) for row in rows)
        return Prepared(text, tuple(counts), strips)

    def see(self, inputs: Any) -> list[Features]:
        return [self._look(strip) for strip in inputs]

    def before(self, number: int) -> str:
        begin, end = self._tags["id"]
        return f"{begin}{number}{end}" if self._numbers else ""

    def _look(self, pixels: NDArray[np.float32]) -> Features:
        rows, columns = (side // self._patch for side in pixels.shape[1:])
        count, capacity, patch = rows * columns, self._capacity, self._patch
        order = _in_windows(rows, columns, self._rounds)
        strip = np.zeros((1, 3, patch, capacity, patch), np.float32)
        cells = pixels.reshape(3, rows, patch, columns, patch).transpose(0, 2, 1, 3, 4).reshape(3, patch, count, patch)
        strip[0, :, :, :count] = cells[:, :, order]
        down, right = (np.arange(extent) * self._side // extent for extent in (rows, columns))
        ids = np.zeros((1, capacity), np.int32)
        ids[0, :count] = (down[:, None] * self._side + right).reshape(-1)[order]
        given: dict[str, NDArray[Any]] = {"pixel_values": strip.reshape(1, 3, patch, -1), "position_ids": ids}
        if self._resampled:
            places = np.zeros((1, capacity, self._width), np.float32)
            places[0, :count] = _places(rows, columns, self._width)
            bias = _mask(capacity, count)
            given |= {"attention_bias": bias, "resampler_pos_embed": places, "resampler_key_bias": bias}
        else:
            given["pre_attention_bias"] = _mask(capacity, count)
            if self._rounds > 1:
                given["post_attention_bias"] = _mask(capacity // _WINDOW**2, count // _WINDOW**2)
        found = run_tower(self._module, given)[0][0]
        return Features(found[: self._tokens(*pixels.shape[1:])].copy())

    def _tokens(self, height: int, width: int) -> int:
        """Of a slice of this size."""
        return self._queries if self._resampled else height * width // self._patch**2 // _WINDOW ** (2 * self._rounds)

    def _cut(self, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int] | None, tuple[int, int]]:
        """Height and width of the whole image; rows and columns of slices, if there are any; their height and width."""
        grid = self._grid(height, width)
        whole = self._fitting(height, width, grows=grid is None)
        if grid is None:
            return whole, None, whole
        rough = [_nearest(extent, count) / count for extent, count in zip((height, width), grid, strict=True)]
        return whole, grid, self._fitting(rough[0], rough[1], grows=True)

    def _grid(self, height: int, width: int) -> tuple[int, int] | None:
        most = min(math.ceil(height * width / self._resolution**2), self._most)
        if most <= 1:
            return None
        wanted = math.log(width / height)

        def error(grid: tuple[int, int]) -> float:
            return abs(wanted - math.log(grid[1] / grid[0]))

        # Of grids that are equally near, that of the fewest slices and then of the most rows.
        return min(self._grids(most), key=lambda grid: (error(grid), grid[0] * grid[1], -grid[0]))

    def _grids(self, most: int) -> Iterator[tuple[int, int]]:
        for count in (most - 1, most, most + 1):
            if 1 < count <= self._most:
                yield from ((rows, count // rows) for rows in range(1, count + 1) if count % rows == 0)

    def _fitting(self, height: float, width: float, grows: bool) -> tuple[int, int]:
        """The size to stretch to: whole tokens; of about the resolution if the image is larger, or grows."""
        if height * width > self._resolution**2 or grows:
            ratio = width / height
            height = int(self._resolution / math.sqrt(ratio))
            width = int(height * ratio)
        cell = self._patch * _WINDOW**self._rounds
        return _nearest(height, cell), _nearest(width, cell)


def _text(token: Any) -> str:
    """Configs have tokens as texts, or as objects with their content."""
    return str(token.get("content") if isinstance(token, dict) else token)


def _nearest(length: float, divisor: int) -> int:
    """The multiple that is nearest, one at least."""
    return max(round(length / divisor) * divisor, divisor)


def _in_windows(rows: int, columns: int, rounds: int) -> NDArray[np.int64]:
    """Numbers of patches, window by window; in two rounds windows lie in windows, too."""
    numbers = np.arange(rows * columns).reshape(rows, columns)
    if rounds == 2:
        inner = merge_major(numbers.reshape(rows // 2, 2, columns // 2, 2).transpose(1, 3, 0, 2), 2)
        return np.ascontiguousarray(inner.reshape(4, -1).T).reshape(-1)
    return merge_major(numbers, _WINDOW) if rounds else numbers.reshape(-1)


def _mask(capacity: int, live: int) -> NDArray[np.float32]:
    return np.where(np.arange(capacity) < live, np.float32(0), np.float32(HIDDEN)).reshape(1, 1, 1, -1)


def _places(rows: int, columns: int, width: int) -> NDArray[np.float32]:
    """[patches, width]: sines and cosines, one half by the column of a patch, the other by its row."""
    down, right = (index.reshape(-1) for index in np.indices((rows, columns)))
    quarter = width // 4
    rates = 10000.0 ** -(np.arange(quarter) / quarter)
    angles = [place[:, None] * rates for place in (right, down)]
    return np.concatenate([part for turn in angles for part in (np.sin(turn), np.cos(turn))], 1).astype(np.float32)
