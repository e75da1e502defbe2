"""The tower of Gemma 4: an image is cut into patches, which are pooled into tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.image_grid import pooled_grid

from ..graph_file import Load
from ..masks import HIDDEN
from ..media import Prepared
from ..mixed_prompt import Features
from ..vision import run_tower
from .picture import ImageError, colours_of
from .reader import Checkpoint

if TYPE_CHECKING:
    from PIL import Image


def tokens_see_each_other(config: Mapping[str, Any]) -> bool:
    """Whether those of an image do, by the config of a checkpoint."""
    text = config.get("text_config")
    return isinstance(text, dict) and text.get("use_bidirectional_attention") == "vision"


class PooledReader:
    """A `Reader` over NAME_visual.hmm, for any image or for images of one size.

    Args:
        path: The graph.
        load: Opens it.
        checkpoint: The package's configs.

    Raises:
        ImageError: The configs lack tokens, or the graph was not made by `tcim-lite compile --vision`.
        TcimError: The graph cannot be loaded.
    """

    writes_marks = False

    def __init__(self, path: Path, load: Load, checkpoint: Checkpoint):
        self._module = load(path)
        try:
            facts = json.loads(self._module.get_custom_msg())
            self._side, self._kernel = int(facts["patch_size"]), int(facts["pooling_kernel_size"])
            self._most, patches = int(facts["tokens"]), int(facts["patches"])
            self._fixed: tuple[int, int] | None = None  # rows and columns of tokens, of images of one size
            if "image_height" in facts:
                most = int(checkpoint.processor.get("max_soft_tokens") or 280)
                size = int(facts["image_height"]), int(facts["image_width"])
                self._fixed = pooled_grid(*size, self._kernel * self._side, most)
                if self._fixed[0] * self._fixed[1] * self._kernel**2 != patches:
                    raise ValueError
        except (ValueError, KeyError, TypeError):
            raise ImageError(
                f"{path} does not say in its custom_msg what images it takes; compile it with `tcim-lite compile "
                "CHECKPOINT --vision`"
            ) from None
        self.placeholder, self.mark = checkpoint.token("image_token_id")
        self._begin, self._end = (checkpoint.token(f"{key}_token_id")[1] for key in ("boi", "eoi"))
        text = checkpoint.config.get("text_config") or {}
        self.stand_in = int(text.get("pad_token_id") or 0)
        self.sees_itself = tokens_see_each_other(checkpoint.config)

    @property
    def most_tokens(self) -> int:
        return self._fixed[0] * self._fixed[1] if self._fixed else self._most

    def prepare(self, image: Image.Image) -> Prepared:
        side = self._kernel * self._side
        rows, columns = self._fixed or pooled_grid(image.height, image.width, side, self._most)
        pixels, count = colours_of(image, (rows * side, columns * side)), rows * columns
        return Prepared(f"{self._begin}{self.mark * count}{self._end}", (count,), pixels)

    def see(self, inputs: Any) -> list[Features]:
        colours, height, width = inputs.shape
        rows, columns = height // self._side, width // self._side
        cells = inputs.reshape(colours, rows, self._side, columns, self._side).transpose(1, 3, 2, 4, 0)
        patches = cells.reshape(rows * columns, -1)
        given = {"pixel_values": patches[None]} if self._fixed else self._any_size(patches, rows, columns)
        found = run_tower(self._module, given)[0][0]
        return [Features(found[: len(patches) // self._kernel**2].copy(), sees_itself=self.sees_itself)]

    def before(self, number: int) -> str:
        return ""

    def _any_size(self, patches: NDArray[np.float32], rows: int, columns: int) -> dict[str, NDArray[Any]]:
        """Inputs for an image of rows x columns patches, padded on the right."""
        kernel, count = self._kernel, len(patches)
        capacity = self._most * kernel**2
        row, column = np.divmod(np.arange(count), columns)
        places = np.zeros((capacity, 2), np.int32)
        places[:count] = np.stack((column, row), axis=1)
        pooling = np.zeros((self._most, capacity), np.float32)
        pooling[row // kernel * (columns // kernel) + column // kernel, np.arange(count)] = 1 / kernel**2
        mask = np.where(np.arange(capacity) < count, 0, HIDDEN)
        return {
            "pixel_values": np.pad(patches, ((0, capacity - count), (0, 0)))[None],
            "attention_mask": mask.reshape(1, 1, 1, -1),
            "pooling_matrix": pooling[None],
            "pixel_position_ids": places[None],
        }
