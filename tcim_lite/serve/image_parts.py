"""The images of a request's messages: the only place that reads them."""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Sequence

from ..llm.engine import MixedPrompt
from ..llm.images import ImageError, ImagePrompts, SeenImage
from ..llm.package import Package
from .errors import ApiError
from .protocol import ContentPart, Message
from .vocabulary import Vocabulary

IMAGES = ("image_url", "input_image")  # types of parts

_log = logging.getLogger(__name__)
_DATA = re.compile(r"data:\s*(image/[\w.+-]+)?(;[\w-]+=[^;,]*)*;base64,", re.IGNORECASE)


def open_images(package: Package, vocabulary: Vocabulary, device: int) -> ImagePrompts | str:
    """What sees the images of a package, or why nothing does.

    Raises:
        TcimError: The tower cannot be loaded.
    """
    if not any(path.name.startswith(f"{package.name}_visual") for path in package.folder.glob("*.hmm")):
        return (
            f"{package.name} has no vision tower, so it reads text only; serve a package of a vision-language model "
            "that was compiled with --vision"
        )
    try:
        return ImagePrompts.open(package, vocabulary.backend_tokenizer, device)
    except (FileNotFoundError, ImageError, ImportError) as error:
        _log.warning("images are refused: %s", error)
        return f"{package.name} cannot be asked about images here: {error}"


class ChatImages:
    """The images of one chat.

    Args:
        opened: From `open_images`.
        most: Tokens of the context.
    """

    def __init__(self, opened: ImagePrompts | str, most: int):
        self._opened, self._most = opened, most
        self._of: dict[int, SeenImage] = {}  # by id of the part

    @property
    def mark(self) -> str:
        """What stands for an image in text; none where the template itself writes it."""
        return self._opened.mark if isinstance(self._opened, ImagePrompts) and self._opened.writes_marks else ""

    def read(self, messages: Sequence[Message]) -> None:
        """Reads the images of messages.

        Raises:
            ApiError: 400: One cannot be read, they have more tokens than the context, or nothing here sees them.
        """
        tokens = 0
        for index, message in enumerate(messages):
            for number, part in enumerate(_images(message)):
                at = f"messages[{index}], image {number + 1}"
                if isinstance(self._opened, str):
                    raise ApiError(
                        400,
                        f"{at}: a part of type {part.type!r:.40}, but {self._opened}",
                        param="messages",
                        code="unsupported_image",
                    )
                try:
                    image = self._of[id(part)] = self._opened.take(_bytes(part, at))
                except ImageError as error:
                    raise _refused(f"{at}: {error}") from None
                tokens += image.tokens
                if tokens > self._most:
                    raise ApiError(
                        400,
                        f"{at}: the images up to here have {tokens} tokens, the context holds {self._most}; send fewer "
                        "or smaller ones, or compile with a larger --context-length",
                        param="messages",
                        code="context_length_exceeded",
                    )

    def of(self, messages: Sequence[Message]) -> list[SeenImage]:
        """The images of some of the messages that were read, in order."""
        return [self._of[id(part)] for message in messages for part in _images(message)]

    def expand(self, text: str, messages: Sequence[Message]) -> str:
        """A rendered prompt with all tokens of its images.

        Raises:
            ApiError: As `ImagePrompts.expand`.
        """
        images = self.of(messages)
        if not images or isinstance(self._opened, str):
            return text
        try:
            return self._opened.expand(text, images)
        except ImageError as error:
            raise _refused(f"messages: {error}") from None

    def place(self, tokens: list[int], images: Sequence[SeenImage]) -> MixedPrompt | list[int]:
        """The prompt for the engine; the tower sees what it has not seen before.

        Raises:
            ApiError: 400: It is longer than the context, or as `ImagePrompts.place`.
        """
        if not images or isinstance(self._opened, str):
            return tokens
        if len(tokens) > self._most:
            seen = sum(image.tokens for image in images)
            raise ApiError(
                400,
                f"the prompt has {len(tokens)} tokens, {seen} of them of images, the context holds {self._most}; "
                "shorten it, send fewer images, or compile with a larger --context-length",
                param="messages",
                code="context_length_exceeded",
            )
        try:
            return self._opened.place(tokens, images)
        except ImageError as error:
            raise _refused(f"messages: {error}") from None


def _images(message: Message) -> list[ContentPart]:
    if not isinstance(message.content, list):
        return []
    return [part for part in message.content if part.type in IMAGES]


def _refused(message: str) -> ApiError:
    return ApiError(400, message, param="messages", code="invalid_image")


def _bytes(part: ContentPart, at: str) -> bytes:
    """The file in a part.

    Raises:
        ApiError: It has none, or an address that this server does not go to.
    """
    url = part.image_url if isinstance(part.image_url, str) or part.image_url is None else part.image_url.url
    if url is None:
        raise _refused(f"{at}: image_url is missing; expected {{'url': 'data:image/png;base64,...'}}")
    found = _DATA.match(url)
    if found is None:
        scheme = url.partition(":")[0].lower() if ":" in url[:20] else ""
        why = {
            "http": "the server fetches nothing",
            "https": "the server fetches nothing",
            "file": "the server opens no files for its clients",
            "data": "it is no image in base64",
        }.get(scheme, "it is no URL that the server reads")
        raise _refused(f"{at}: {url!r:.60}: {why}; send the image itself, as data:image/png;base64,...")
    try:
        return base64.b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused(f"{at}: what follows {found[0]!r:.40} is not base64: {error}") from None
