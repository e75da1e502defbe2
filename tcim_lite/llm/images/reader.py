"""What a kind of vision tower makes of an image in a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .. import media
from ..json_object import read_object
from ..media import Prepared
from .picture import ImageError

if TYPE_CHECKING:
    from PIL import Image


class Reader(media.Reader, Protocol):
    """The images of one kind of towers.

    Attributes:
        sees_itself: as in `Features`.
        most_tokens: of an image, tags aside.
    """

    sees_itself: bool

    @property
    def most_tokens(self) -> int:
        """As above."""

    def prepare(self, image: Image.Image) -> Prepared:
        """Cuts, stretches and counts; runs nothing on a device."""


class Checkpoint(media.Configs):
    """What a package keeps of its checkpoint's configs.

    Attributes:
        processor: Of the images, `preprocessor_config.json` or that part of `processor_config.json`.
    """

    def __init__(self, folder: Path, tokenizer: Any):
        super().__init__(folder, tokenizer)
        found = read_object(folder / "preprocessor_config.json")
        if not found:
            found = read_object(folder / "processor_config.json").get("image_processor") or {}
        self.processor: Mapping[str, Any] = found if isinstance(found, dict) else {}

    def colours(self, keys: Sequence[str] = ("image_mean", "image_std")) -> tuple[list[float], list[float]]:
        """Mean and deviation of each colour, which the processor has in these keys; 0.5 where nothing says them.

        Raises:
            ImageError: They are no numbers.
        """
        found = []
        for key in keys:
            values = self.processor.get(key) or [0.5] * 3
            is_list = isinstance(values, list) and len(values) == 3
            if not is_list or not all(isinstance(value, (int, float)) for value in values):
                raise ImageError(f"preprocessor_config.json: {key}={json.dumps(values)[:80]}: expected three numbers")
            found.append([float(value) for value in values])
        return found[0], found[1]
