"""Images and sounds at a terminal: files that stand before a question."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..llm.engine import MixedPrompt
    from ..llm.media import MediaPrompts, Seen
    from ..llm.package import Package

# What files are, as options and chat templates call it: what it is in words, and which packages take it.
KINDS = {
    "image": ("image", "with a vision tower"),
    "audio": ("sound", "that hears (WAV)"),
}
Shown = tuple[str, "Seen"]  # its kind, and what is there


def add_file_arguments(parser: argparse.ArgumentParser, where: str) -> None:
    """Adds `--image FILE` and `--audio FILE`, which may be repeated; `where` in the help has a {} for what it is."""
    for kind, (what, which) in KINDS.items():
        parser.add_argument(
            f"--{kind}",
            metavar="FILE",
            type=Path,
            action="append",
            default=[],
            help=f"{where.format('an image' if what == 'image' else f'a {what}')}, for a package {which}; may be "
            "repeated",
        )


def counted(shown: Sequence[Shown]) -> str:
    """How many of each kind, in words."""
    counts = [(sum(kind == own for kind, _ in shown), what) for own, (what, _) in KINDS.items()]
    return " and ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count)


class ShownFiles:
    """The images and sounds of a conversation; what sees or hears them is loaded when the first one comes.

    Args:
        package: Being used.
        tokenizer: Its own.
        device: Where towers run.
    """

    def __init__(self, package: Package, tokenizer: Any, device: int):
        self._package, self._tokenizer, self._device = package, tokenizer, device
        self._opened: dict[str, MediaPrompts] = {}

    def take_all(self, args: argparse.Namespace) -> list[Shown]:
        """The files of the command line; raises as `take`."""
        return [self.take(path, kind) for kind in KINDS for path in getattr(args, kind)]

    def take(self, path: Path, kind: str) -> Shown:
        """The image or sound in a file.

        Raises:
            ValueError: It is no file that can be read or none of its kind, or the package takes none.
            ImportError: Pillow is missing.
        """
        from ..llm.media import MediaError

        what, _ = KINDS[kind]
        try:
            if not path.is_file() and path.exists():
                raise ValueError(f"{path}: is not a regular file; give a file with {what}s")
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        try:
            if kind not in self._opened:
                self._opened[kind] = self._open(kind)
        except (FileNotFoundError, MediaError) as error:
            raise ValueError(f"{path}: {self._package.name} takes no {what}s here: {error}") from None
        try:
            return kind, self._opened[kind].take(data)
        except MediaError as error:
            raise ValueError(f"{path}: {error}") from None

    def content(self, text: str, shown: Sequence[Shown]) -> Any:
        """The content of a message with images and sounds before its text."""
        if not shown:
            return text
        if any(self._opened[kind].writes_marks for kind, _ in shown):
            return "\n".join([*(self._opened[kind].mark for kind, _ in shown), text])
        return [*({"type": kind} for kind, _ in shown), {"type": "text", "text": text}]

    def encode(self, messages: list[dict[str, Any]], shown: Sequence[Shown], enable_thinking: bool | None) -> list[int]:
        """Tokens of a conversation, with a placeholder for each token of its images and sounds.

        Raises:
            ValueError: As `encode_chat` and `MediaPrompts.expand`.
        """
        from ..llm.media import expand_all
        from ..llm.tokenizer import encode_chat

        expand = (lambda text: expand_all(text, self._groups(shown))) if shown else None
        return encode_chat(self._tokenizer, messages, enable_thinking=enable_thinking, expand=expand)

    def place(self, tokens: list[int], shown: Sequence[Shown], room: int) -> MixedPrompt | list[int]:
        """The prompt for an engine whose context holds `room` tokens; what is new goes to its tower now."""
        from ..llm.media import place_all

        if len(tokens) > room:  # the engine says that it is too long
            return tokens
        return place_all(tokens, self._groups(shown))

    def _open(self, kind: str) -> MediaPrompts:
        from ..llm.images import ImagePrompts
        from ..llm.media import MediaError
        from ..llm.sounds import SoundPrompts

        prompts = ImagePrompts if kind == "image" else SoundPrompts
        opened: MediaPrompts = prompts.open(self._package, self._tokenizer.backend_tokenizer, self._device)
        if isinstance(opened, SoundPrompts) and opened.whisper is not None:
            raise MediaError("Whisper is asked with no chat; `serve` it, and send the file to /v1/audio/transcriptions")
        return opened

    def _groups(self, shown: Sequence[Shown]) -> list[tuple[MediaPrompts, list[Seen]]]:
        return [
            (opened, own)
            for kind, opened in self._opened.items()
            if (own := [seen for of, seen in shown if of == kind])
        ]
