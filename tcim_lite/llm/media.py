"""Images and sounds of prompts: where their tokens are, and what was seen or heard already."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .json_object import read_object
from .mixed_prompt import Features, MixedPrompt

_KEPT_BYTES = 256 << 20  # of features of files that came before


class MediaError(ValueError):
    """An image or a sound that cannot be used; the message says why, in one line.

    Args:
        message: Why.
        kinds: "images" or "sounds", if a whole prompt is wrong.
    """

    def __init__(self, message: str, kinds: str = ""):
        super().__init__(message)
        self.kinds = kinds


@dataclass(frozen=True)
class Prepared:
    """An image or a sound that a tower can take.

    Attributes:
        text: what stands for it in a prompt: a placeholder for each of its tokens, and tags.
        counts: tokens of each of its pieces, as many pieces as `Reader.see` returns.
        inputs: what `Reader.see` takes, an array or a list of them; None once it has been seen.
    """

    text: str
    counts: tuple[int, ...]
    inputs: Any


@dataclass(eq=False)
class Seen:
    """An image or a sound of a conversation.

    Attributes:
        prepared: its text, and what the tower takes.
        features: of each of its pieces; none until the tower has seen it.
    """

    prepared: Prepared
    features: list[Features] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """How many tokens are placeholders for it."""
        return sum(self.prepared.counts)


class Reader(Protocol):
    """What one kind of towers takes.

    Attributes:
        mark: what a chat template writes for an image or a sound.
        placeholder: id of the token in whose places features lie.
        stand_in: as in `MixedPrompt`.
        writes_marks: chat templates take text alone, and the mark is part of it.
    """

    mark: str
    placeholder: int
    stand_in: int
    writes_marks: bool

    def see(self, inputs: Any) -> list[Features]:
        """Runs the tower; one thread at a time."""

    def before(self, number: int) -> str:
        """What stands before the text of image or sound `number` of a prompt."""


class MediaPrompts:
    """Images or sounds of a package's prompts; thread-safe.

    A chat sends its files again in every turn, so features are kept, the latest of them, by a digest of the file.

    Args:
        reader: Of the package's tower.
        prepare: Makes its inputs from the bytes of a file; raises MediaError.
        kinds: What they are called, "images".
    """

    def __init__(self, reader: Reader, prepare: Callable[[bytes], Prepared], kinds: str):
        self._tower, self._prepare, self._kinds = reader, prepare, kinds
        self.mark, self.writes_marks, self.stand_in = reader.mark, reader.writes_marks, reader.stand_in
        self._at_work, self._lock = threading.Lock(), threading.Lock()  # over the tower, and over what is seen
        self._seen: OrderedDict[bytes, Seen] = OrderedDict()

    def take(self, data: bytes) -> Seen:
        """What is in a file, ready to be counted.

        Raises:
            MediaError: It cannot be read, or the package cannot take it.
        """
        digest = hashlib.sha256(data).digest()
        with self._lock:
            if (known := self._seen.get(digest)) is not None:
                self._seen.move_to_end(digest)
                return known
        made = Seen(self._prepare(data))
        with self._lock:
            self._keep(digest, made)
        return made

    def expand(self, text: str, seen: Sequence[Seen]) -> str:
        """A rendered prompt with a placeholder for each token of its images or sounds, whose marks it has in order.

        Raises:
            MediaError: It has more or fewer marks.
        """
        first, *others = text.split(self.mark)
        if len(others) != len(seen):
            raise MediaError(
                f"the prompt has {self.mark} {len(others)} times for {len(seen)} {self._kinds}: the text of a message "
                "has it, or the chat template does not write it once for each of them",
                self._kinds,
            )
        parts = [first]
        for number, (each, behind) in enumerate(zip(seen, others, strict=True)):
            parts += [self._tower.before(number), each.prepared.text, behind]
        return "".join(parts)

    def place(self, tokens: Sequence[int], seen: Sequence[Seen]) -> MixedPrompt:
        """The prompt with the features of its images or sounds, in order; those that are new go to the tower now.

        Raises:
            MediaError: The prompt does not have their placeholders.
        """
        return MixedPrompt(tokens, self._places(tokens, seen), self.stand_in)

    def _places(self, tokens: Sequence[int], seen: Sequence[Seen]) -> list[tuple[int, Features]]:
        free = [place for place, token in enumerate(tokens) if token == self._tower.placeholder]
        if len(free) != (count := sum(each.tokens for each in seen)):
            raise MediaError(
                f"the prompt has {len(free)} placeholders for {count} tokens of {self._kinds}", self._kinds
            )
        places, begin = [], 0
        for each in seen:
            for features in self._features(each):
                own = free[begin : begin + len(features)]
                if own[-1] - own[0] >= len(own):
                    raise MediaError(
                        f"placeholders of one of the {self._kinds} do not lie side by side in the prompt", self._kinds
                    )
                places.append((own[0], features))
                begin += len(features)
        return places

    def _features(self, each: Seen) -> list[Features]:
        with self._at_work:  # another request may have had it seen meanwhile
            if not each.features:
                each.features = self._tower.see(each.prepared.inputs)
                each.prepared = Prepared(each.prepared.text, each.prepared.counts, None)
            return each.features

    def _keep(self, digest: bytes, each: Seen) -> None:
        """Remembers a file; forgets the oldest ones."""
        if digest not in self._seen:
            self._seen[digest] = each
        while len(self._seen) > 1 and sum(map(_bytes_of, self._seen.values())) > _KEPT_BYTES:
            self._seen.popitem(last=False)


Groups = Sequence[tuple[MediaPrompts, Sequence[Seen]]]
"""The images and sounds of one prompt, of each kind in order."""


def expand_all(text: str, groups: Groups) -> str:
    """As `MediaPrompts.expand`, of all kinds."""
    for prompts, seen in groups:
        text = prompts.expand(text, seen)
    return text


def place_all(tokens: list[int], groups: Groups) -> MixedPrompt | list[int]:
    """As `MediaPrompts.place`, of all kinds; the tokens if there are none."""
    places = [place for prompts, seen in groups for place in prompts._places(tokens, seen)]
    if not places:
        return tokens
    return MixedPrompt(tokens, sorted(places, key=lambda place: place[0]), groups[-1][0].stand_in)


def _bytes_of(seen: Seen) -> int:
    inputs = seen.prepared.inputs
    given: list[Any] = inputs if isinstance(inputs, list) else [] if inputs is None else [inputs]
    parts = [part for features in seen.features for part in (features.rows, *features.deepstack, features.beside)]
    return sum(part.nbytes for part in (*given, *parts) if part is not None)


class Configs:
    """What a package keeps of its checkpoint's configs.

    Args:
        folder: Of the tokenizer.
        tokenizer: Its own, of the library tokenizers: `backend_tokenizer` of one of transformers.

    Attributes:
        config: `config.json`.
        tokenizer: `tokenizer_config.json`.
    """

    def __init__(self, folder: Path, tokenizer: Any):
        self._ids = tokenizer
        self.config: Mapping[str, Any] = read_object(folder / "config.json")
        if isinstance(inner := self.config.get("thinker_config"), dict):  # Qwen3-Omni, Qwen3-ASR
            self.config = {**self.config, **inner, "model_type": self.config.get("model_type")}
        self.tokenizer: Mapping[str, Any] = read_object(folder / "tokenizer_config.json")

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """Ids of all tokens."""
        found: Mapping[str, int] = self._ids.get_vocab()
        return found

    def token(self, key: str) -> tuple[int, str]:
        """The id that `config.json` has in `key`, and the token's text.

        Raises:
            MediaError: One of them is not there.
        """
        number = self.config.get(key)
        text = self._ids.id_to_token(number) if isinstance(number, int) and number >= 0 else None
        if not isinstance(number, int) or text is None:
            raise MediaError(
                f"config.json: {key}={number!r:.40} is no token of the tokenizer; compile the whole checkpoint, with "
                "its tokenizer"
            )
        return number, text

    def id_of(self, text: str) -> int:
        """The id of a token.

        Raises:
            MediaError: There is none.
        """
        number: int | None = self._ids.token_to_id(text)
        if number is None:
            raise MediaError(f"the tokenizer has no token {text!r:.40}; compile the checkpoint with its own tokenizer")
        return number
