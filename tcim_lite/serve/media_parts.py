"""The images and sounds of a request's messages: the only place that reads them."""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Sequence

from ..llm.engine import MixedPrompt
from ..llm.images import ImagePrompts
from ..llm.media import Groups, MediaError, MediaPrompts, Seen, expand_all, place_all
from ..llm.package import Package
from ..llm.sounds import SoundPrompts
from .errors import ApiError
from .protocol import ContentPart, Message
from .vocabulary import Vocabulary

# Types of parts, and what they are.
KINDS = {"image_url": "image", "input_image": "image", "input_audio": "sound"}
_CODES = {"image": "image", "sound": "audio"}  # in codes of errors

_log = logging.getLogger(__name__)
_DATA = re.compile(r"data:\s*(image/[\w.+-]+)?(;[\w-]+=[^;,]*)*;base64,", re.IGNORECASE)


def open_images(package: Package, vocabulary: Vocabulary, device: int) -> ImagePrompts | str:
    """What sees the images of a package, or why nothing does.

    Raises:
        TcimError: The tower cannot be loaded.
    """
    if not any(path.name.startswith(f"{package.name}_visual") for path in package.folder.glob("*.hmm")):
        return (
            f"{package.name} has no vision tower, so it sees no images; serve a package of a vision-language model "
            "that was compiled with --vision"
        )
    try:
        return ImagePrompts.open(package, vocabulary.backend_tokenizer, device)
    except (FileNotFoundError, MediaError, ImportError) as error:
        _log.warning("images are refused: %s", error)
        return f"{package.name} cannot be asked about images here: {error}"


def open_sounds(package: Package, vocabulary: Vocabulary, device: int) -> SoundPrompts | str:
    """What hears the sounds of a package, or why nothing does.

    Raises:
        TcimError: The encoder cannot be loaded.
    """
    try:
        return SoundPrompts.open(package, vocabulary.backend_tokenizer, device)
    except FileNotFoundError as error:
        return str(error)
    except MediaError as error:
        _log.warning("sounds are refused: %s", error)
        return f"{package.name} cannot be asked about sounds here: {error}"


class ChatMedia:
    """The images and sounds of one chat.

    Args:
        images: From `open_images`.
        sounds: From `open_sounds`.
        most: Tokens of the context.
    """

    def __init__(self, images: ImagePrompts | str, sounds: SoundPrompts | str, most: int):
        self._opened: dict[str, MediaPrompts | str] = {"image": images, "sound": sounds}
        self._most = most
        self._of: dict[int, tuple[str, Seen]] = {}  # by id of the part

    @property
    def marks(self) -> dict[str, str]:
        """What stands for an image or a sound in text; of the kinds that the template does not write itself."""
        return {
            kind: opened.mark
            for kind, opened in self._opened.items()
            if isinstance(opened, MediaPrompts) and opened.writes_marks
        }

    def read(self, messages: Sequence[Message]) -> None:
        """Reads the images and sounds of messages.

        Raises:
            ApiError: 400: One cannot be read, they have more tokens than the context, or nothing here takes them.
        """
        tokens, kinds = 0, list[str]()
        for index, message in enumerate(messages):
            numbers = dict.fromkeys(_CODES, 0)
            for part in _media(message):
                kind = KINDS[part.type]
                numbers[kind] += 1
                at = f"messages[{index}], {kind} {numbers[kind]}"
                opened = self._opened[kind]
                if isinstance(opened, str):
                    raise ApiError(
                        400,
                        f"{at}: a part of type {part.type!r:.40}, but {opened}",
                        param="messages",
                        code=f"unsupported_{_CODES[kind]}",
                    )
                try:
                    seen = opened.take(_sound_bytes(part, at) if kind == "sound" else _image_bytes(part, at))
                except MediaError as error:
                    raise _refused(f"{at}: {error}", kind) from None
                self._of[id(part)] = kind, seen
                tokens, kinds = tokens + seen.tokens, [*kinds, kind]
                if tokens > self._most:
                    raise ApiError(
                        400,
                        f"{at}: the {_plural(kinds)} up to here have {tokens} tokens, the context holds {self._most}; "
                        "send fewer or smaller ones, or compile with a larger --context-length",
                        param="messages",
                        code="context_length_exceeded",
                    )

    def of(self, messages: Sequence[Message]) -> list[tuple[str, Seen]]:
        """What was read of some of the messages, in order, and its kind."""
        return [self._of[id(part)] for message in messages for part in _media(message)]

    def expand(self, text: str, messages: Sequence[Message]) -> str:
        """A rendered prompt with all tokens of its images and sounds.

        Raises:
            ApiError: As `MediaPrompts.expand`.
        """
        try:
            return expand_all(text, self._groups(self.of(messages)))
        except MediaError as error:
            raise _refused(f"messages: {error}", error.kinds.removesuffix("s")) from None

    def place(self, tokens: list[int], shown: Sequence[tuple[str, Seen]]) -> MixedPrompt | list[int]:
        """The prompt for the engine; towers get what they have not seen before.

        Raises:
            ApiError: 400: It is longer than the context, or as `MediaPrompts.place`.
        """
        if shown and len(tokens) > self._most:
            own, what = sum(seen.tokens for _, seen in shown), _plural([kind for kind, _ in shown])
            raise ApiError(
                400,
                f"the prompt has {len(tokens)} tokens, {own} of them of {what}, the context holds {self._most}; "
                f"shorten it, send fewer {what}, or compile with a larger --context-length",
                param="messages",
                code="context_length_exceeded",
            )
        try:
            return place_all(tokens, self._groups(shown))
        except MediaError as error:
            raise _refused(f"messages: {error}", error.kinds.removesuffix("s")) from None

    def _groups(self, shown: Sequence[tuple[str, Seen]]) -> Groups:
        return [
            (opened, own)
            for kind, opened in self._opened.items()
            if isinstance(opened, MediaPrompts) and (own := [seen for known, seen in shown if known == kind])
        ]


def _plural(kinds: Sequence[str]) -> str:
    return " and ".join(f"{kind}s" for kind in dict.fromkeys(kinds))


def _media(message: Message) -> list[ContentPart]:
    if not isinstance(message.content, list):
        return []
    return [part for part in message.content if part.type in KINDS]


def _refused(message: str, kind: str) -> ApiError:
    return ApiError(400, message, param="messages", code=f"invalid_{_CODES[kind]}")


def _image_bytes(part: ContentPart, at: str) -> bytes:
    """The file in a part.

    Raises:
        ApiError: It has none, or an address that this server does not go to.
    """
    url = part.image_url if isinstance(part.image_url, str) or part.image_url is None else part.image_url.url
    if url is None:
        raise _refused(f"{at}: image_url is missing; expected {{'url': 'data:image/png;base64,...'}}", "image")
    found = _DATA.match(url)
    if found is None:
        scheme = url.partition(":")[0].lower() if ":" in url[:20] else ""
        why = {
            "http": "the server fetches nothing",
            "https": "the server fetches nothing",
            "file": "the server opens no files for its clients",
            "data": "it is no image in base64",
        }.get(scheme, "it is no URL that the server reads")
        raise _refused(f"{at}: {url!r:.60}: {why}; send the image itself, as data:image/png;base64,...", "image")
    return _decoded(url[found.end() :], f"{at}: what follows {found[0]!r:.40}", "image")


def _sound_bytes(part: ContentPart, at: str) -> bytes:
    """The file in a part.

    Raises:
        ApiError: It has none, or one that is not WAV.
    """
    sound = part.input_audio
    if sound is None:
        raise _refused(f"{at}: input_audio is missing; expected {{'data': BASE64, 'format': 'wav'}}", "sound")
    if sound.format is not None and sound.format.lower() != "wav":
        raise _refused(
            f"{at}: format={sound.format!r:.40}: nothing here decodes it; send WAV, which `ffmpeg -i SOUND OUT.wav` "
            "makes of other files",
            "sound",
        )
    return _decoded(sound.data, f"{at}: data", "sound")


def _decoded(text: str, what: str, kind: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)  # in lines too, as many tools write it
    except (binascii.Error, ValueError) as error:
        raise _refused(f"{what} is not base64: {error}", kind) from None
