"""Towers of Qwen, PaddleOCR-VL and GLM-OCR: an image is one grid of tokens, with positions along three axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..media import Prepared
from ..mixed_prompt import Features
from ..vision import VisionTower
from .picture import normalised
from .reader import Checkpoint

if TYPE_CHECKING:
    from PIL import Image


class GridReader:
    """A `Reader` over a `VisionTower`.

    Args:
        tower: Of the package.
        checkpoint: Its configs.

    Raises:
        ImageError: The configs lack the placeholder, or have means that are no numbers.
    """

    writes_marks, sees_itself = False, False

    def __init__(self, tower: VisionTower, checkpoint: Checkpoint):
        self._tower, self._colours = tower, checkpoint.colours()
        self.placeholder, self.mark = checkpoint.token("image_token_id")
        self.stand_in = self.placeholder

    @property
    def most_tokens(self) -> int:
        return max(self._tower.gears)

    def prepare(self, image: Image.Image) -> Prepared:
        size = self._tower.fitting(image.height, image.width)
        count = size[0] * size[1] // self._tower.cell**2
        return Prepared(self.mark * count, (count,), normalised(image, size, *self._colours))

    def see(self, inputs: Any) -> list[Features]:
        rows, *stacks = self._tower.see(inputs)
        height, width = (side // self._tower.cell for side in inputs.shape[1:])
        return [Features(rows, tuple(stacks), (height, width))]

    def before(self, number: int) -> str:
        return ""
