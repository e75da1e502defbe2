"""What a kind of vision tower makes of an image in a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..json_object import read_object
from ..mixed_prompt import Features
from .picture import ImageError

if TYPE_CHECKING:
    from PIL import Image

_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Prepared:
    """An image that a tower can look at.

    Attributes:
        text: what stands for it in a prompt: a placeholder for each of its tokens, and tags.
        counts: tokens of each piece of the image, as many pieces as `Reader.see` returns.
        inputs: what `Reader.see` takes, an array or a list of them; None once it has been seen.
    """

    text: str
    counts: tuple[int, ...]
    inputs: Any


class Reader(Protocol):
    """The images of one kind of towers.

    Attributes:
        mark: what a chat template writes for an image.
        placeholder: id of the token in whose places features lie.
        stand_in: as in `MixedPrompt`.
        writes_marks: chat templates take text alone, and the mark is part of it.
    """

    mark: str
    placeholder: int
    stand_in: int
    writes_marks: bool

    def prepare(self, image: Image.Image) -> Prepared:
        """Cuts, stretches and counts; runs nothing on a device."""

    def see(self, inputs: Any) -> list[Features]:
        """Runs the tower; one thread at a time."""

    def before(self, number: int) -> str:
        """What stands before the text of image `number` of a prompt."""


class Checkpoint:
    """What a package keeps of its checkpoint's configs.

    Args:
        folder: Of the tokenizer.
        tokenizer: As in `ImagePrompts.open`.

    Attributes:
        config: `config.json`.
        tokenizer: `tokenizer_config.json`.
        processor: Of the images, `preprocessor_config.json` or that part of `processor_config.json`.
    """

    def __init__(self, folder: Path, tokenizer: Any):
        self._ids = tokenizer
        self.config: Mapping[str, Any] = read_object(folder / "config.json", _MOST_BYTES)
        if isinstance(inner := self.config.get("thinker_config"), dict):  # Qwen3-Omni
            self.config = {**self.config, **inner}
        self.tokenizer: Mapping[str, Any] = read_object(folder / "tokenizer_config.json", _MOST_BYTES)
        found = read_object(folder / "preprocessor_config.json", _MOST_BYTES)
        if not found:
            found = read_object(folder / "processor_config.json", _MOST_BYTES).get("image_processor") or {}
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

    def token(self, key: str) -> tuple[int, str]:
        """The id that `config.json` has in `key`, and the token's text.

        Raises:
            ImageError: One of them is not there.
        """
        number = self.config.get(key)
        text = self._ids.id_to_token(number) if isinstance(number, int) and number >= 0 else None
        if not isinstance(number, int) or text is None:
            raise ImageError(
                f"config.json: {key}={number!r:.40} is no token of the tokenizer; compile the whole checkpoint, with "
                "its tokenizer"
            )
        return number, text

    def id_of(self, text: str) -> int:
        """The id of a token.

        Raises:
            ImageError: There is none.
        """
        number: int | None = self._ids.token_to_id(text)
        if number is None:
            raise ImageError(f"the tokenizer has no token {text!r:.40}; compile the checkpoint with its own tokenizer")
        return number
