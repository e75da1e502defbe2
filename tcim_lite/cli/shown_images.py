"""Images at a terminal: files that a question shows."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..llm.engine import MixedPrompt
    from ..llm.images import ImagePrompts
    from ..llm.media import Seen
    from ..llm.package import Package


def add_image_argument(parser: argparse.ArgumentParser, where: str) -> None:
    """Adds `--image FILE`, which may be repeated; the help says `where` an image stands."""
    parser.add_argument(
        "--image",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help=f"{where}, for a package with a vision tower; may be repeated",
    )


class ShownImages:
    """The images of a conversation; the vision tower is loaded when the first one comes.

    Args:
        package: Being used.
        tokenizer: Its own.
        device: Where the tower runs.
    """

    def __init__(self, package: Package, tokenizer: Any, device: int):
        self._package, self._tokenizer, self._device = package, tokenizer, device
        self._opened: ImagePrompts | None = None

    def take(self, path: Path) -> Seen:
        """The image in a file.

        Raises:
            ValueError: It is no file that can be read or no image, or the package sees none.
            ImportError: Pillow is missing.
        """
        from ..llm.images import ImagePrompts
        from ..llm.media import MediaError

        try:
            if not path.is_file() and path.exists():
                raise ValueError(f"{path}: is not a regular file; give a file with an image")
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None

        if self._opened is None:
            try:
                self._opened = ImagePrompts.open(self._package, self._tokenizer.backend_tokenizer, self._device)
            except FileNotFoundError as error:
                raise ValueError(f"{path} cannot be shown to {self._package.name}: {error}") from None
        try:
            return self._opened.take(data)
        except MediaError as error:
            raise ValueError(f"{path}: {error}") from None

    def content(self, text: str, count: int) -> Any:
        """The content of a message with so many images before its text."""
        if not count or self._opened is None:
            return text
        if self._opened.writes_marks:
            return "\n".join([self._opened.mark] * count + [text])
        return [{"type": "image"}] * count + [{"type": "text", "text": text}]

    def encode(self, messages: list[dict[str, Any]], images: Sequence[Seen], enable_thinking: bool | None) -> list[int]:
        """Tokens of a conversation, with a placeholder for each token of its images.

        Raises:
            ValueError: As `encode_chat` and `ImagePrompts.expand`.
        """
        from ..llm.tokenizer import encode_chat

        opened = self._opened
        expand = None if opened is None or not images else lambda text: opened.expand(text, images)
        return encode_chat(self._tokenizer, messages, enable_thinking=enable_thinking, expand=expand)

    def place(self, tokens: list[int], images: Sequence[Seen], room: int) -> MixedPrompt | list[int]:
        """The prompt for an engine whose context holds `room` tokens; images that are new are seen now."""
        if self._opened is None or not images or len(tokens) > room:  # the engine says that it is too long
            return tokens
        return self._opened.place(tokens, images)
