"""Prompts in which rows of images or sounds stand in the place of tokens."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np


@dataclass(frozen=True, eq=False)
class Features:
    """What a tower made of an image or a sound.

    Attributes:
        rows: [n, H], in the place of embeddings of n tokens.
        deepstack: for each deepstack input of the graphs, [n, H].
        grid: rows and columns of the tokens of an image whose tokens have three positions; None where they have one,
            as those of text.
        sees_itself: in layers with a window, a token also sees those behind it in the same image.
        beside: what an encoder takes at whose results the graphs look beside the tokens (Whisper).
    """

    rows: np.ndarray
    deepstack: tuple[np.ndarray, ...] = ()
    grid: tuple[int, int] | None = None
    sees_itself: bool = False
    beside: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or not len(self.rows):
            raise ValueError(f"features of shape {list(self.rows.shape)}: expected [tokens, width], one token at least")
        if bad := [list(part.shape) for part in self.deepstack if part.shape != self.rows.shape]:
            raise ValueError(f"deepstack features of shape {bad[0]}: expected {list(self.rows.shape)}, as the rows")
        if self.grid is not None and self.grid[0] * self.grid[1] != len(self.rows):
            raise ValueError(f"a grid of {self.grid[0]} x {self.grid[1]} tokens for {len(self.rows)} rows")

    def __len__(self) -> int:
        """The number of tokens, n."""
        return len(self.rows)

    def digest(self) -> bytes:
        """Of everything that cache rows depend on."""
        made = hashlib.sha256(repr((self.grid, self.sees_itself, len(self.deepstack))).encode())
        for part in (self.rows, *self.deepstack, *(() if self.beside is None else (self.beside,))):
            made.update(f"{part.dtype.str}{part.shape}".encode())
            made.update(np.ascontiguousarray(part).tobytes())
        return made.digest()


class _Numbers:
    """Numbers below 0 for rows of features: the same for the same features, and for no others."""

    _MOST = 1 << 16  # what has been forgotten gets new numbers, which costs a prefill

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._next = -1

    def of(self, features: Features) -> range:
        """One for each row."""
        digest, count = features.digest(), len(features)
        with self._lock:
            first = self._known.pop(digest, None)
            if first is None:
                first, self._next = self._next, self._next - count
            self._known[digest] = first
            if len(self._known) > self._MOST:
                self._known.popitem(last=False)
        return range(first, first - count, -1)


_NUMBERS = _Numbers()


@dataclass(frozen=True, eq=False)
class Part:
    """What a run takes of a part of a prompt besides its rows.

    Attributes:
        positions: [3, n], along time, height and width.
        deepstack: [n, H] each; zeros at tokens of text.
        blocks: for each token the number of the image whose tokens it sees, those behind it too; -1 for none.
        beside: as in `Features`, of the last that has it, wherever it stands.
    """

    positions: np.ndarray
    deepstack: list[np.ndarray]
    blocks: np.ndarray
    beside: np.ndarray | None = None


class MixedPrompt(Sequence[int]):
    """Tokens, some of which are only places for features. As a sequence, it is that of its tokens.

    Args:
        tokens: Ids; any id of the vocabulary at the places of features, usually that of a placeholder.
        places: The first place of each of the features, in order, and the features.
        stand_in: The id whose inputs of layers features have, in models with such inputs (Gemma 4 E2B and E4B).

    Attributes:
        tokens: As given.
        places: As given.
        keys: The tokens, but numbers below 0 at the places of features, which are equal only for equal rows. Cache rows
            that depend on equal keys are equal.
        shift: What the position of a token behind the prompt is more than its number; at most 0.

    Raises:
        ValueError: The features overlap, do not lie in the prompt, or are none.
    """

    def __init__(self, tokens: Sequence[int], places: Sequence[tuple[int, Features]], stand_in: int = 0):
        self.tokens, self.places, self._stand_in = list(tokens), list(places), stand_in
        if not self.places:
            raise ValueError("no features; a prompt of text alone is a list of token ids")
        self.keys, end = list(tokens), 0
        for begin, features in self.places:
            if begin < end or begin + len(features) > len(self.keys):
                raise ValueError(
                    f"{len(features)} rows of features at place {begin} of {len(self.keys)} tokens, the first {end} of "
                    "them taken; expected places within the prompt, in order"
                )
            end = begin + len(features)
            self.keys[begin:end] = _NUMBERS.of(features)
        for _, features in self.places:  # every row depends on what lies beside, those before its place too
            if features.beside is not None:
                self.keys[:1] = _NUMBERS.of(replace(features, rows=np.array([self.keys[:1]])))
        self._positions = self._all_positions()
        self.shift = int(self._positions.max()) + 1 - len(self.keys)

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self.tokens[index]

    def rows(self, embedding: Any, begin: int, end: int) -> np.ndarray:
        """[end - begin, width] of tokens `begin` to `end`: rows of the embedding, and those of features."""
        ids = list(self.tokens[begin:end])
        parts = list(self._within(begin, end))
        for place, _, _ in parts:
            ids[place] = [self._stand_in] * (place.stop - place.start)
        found: np.ndarray = np.array(embedding[ids])
        for place, features, own in parts:
            found[place, : features.rows.shape[1]] = features.rows[own]
        return found

    def part(self, begin: int, end: int) -> Part:
        """What a run of tokens `begin` to `end` takes besides."""
        parts, count = list(self._within(begin, end)), end - begin
        width, dtype = self.places[0][1].rows.shape[1], self.places[0][1].rows.dtype
        layers = max(len(features.deepstack) for _, features in self.places)
        stacks = [np.zeros((count, width), dtype) for _ in range(layers)]
        blocks = np.full(count, -1)
        for number, (place, features, own) in enumerate(parts):
            for stack, values in zip(stacks, features.deepstack, strict=False):
                stack[place] = values[own]
            if features.sees_itself:
                blocks[place] = number
        beside = [features.beside for _, features in self.places if features.beside is not None]
        return Part(self._positions[:, begin:end], stacks, blocks, beside[-1] if beside else None)

    def cut(self, begin: int, most: int) -> int:
        """Where a run from `begin` on, of at most `most` tokens, ends: not within what has to be seen whole.

        Raises:
            ValueError: Such features have more tokens.
        """
        end = min(begin + most, len(self))
        for first, features in self.places:
            last = first + len(features)
            if features.sees_itself and first < end < last:
                if first <= begin:
                    raise ValueError(
                        f"an image of {len(features)} tokens, which see each other, has to be in one run, and a run "
                        f"takes {most}; compile with --prefill-length {len(features)} or more"
                    )
                return first
        return end

    def whole(self, count: int) -> int:
        """How many of the first `count` tokens may come from a cache: what sees itself is there whole, or not."""
        for first, features in self.places:
            if features.sees_itself and first < count < first + len(features):
                return first
        return count

    def _within(self, begin: int, end: int) -> Iterator[tuple[slice, Features, slice]]:
        """Features with rows in tokens `begin` to `end`: where, counted from `begin`, and which of their rows."""
        for first, features in self.places:
            low, high = max(begin, first), min(end, first + len(features))
            if low < high:
                yield slice(low - begin, high - begin), features, slice(low - first, high - first)

    def _all_positions(self) -> np.ndarray:
        """[3, N]: text counts on; an image lies at one time, and text behind it goes on after its largest position."""
        found, following, done = np.zeros((3, len(self.tokens)), np.int32), 0, 0

        def count_on(end: int) -> None:
            nonlocal following, done
            found[:, done:end] = np.arange(following, following + end - done)
            following, done = following + end - done, end

        for begin, features in self.places:
            if features.grid is None:
                continue
            count_on(begin)
            done = begin + len(features)
            found[1:, begin:done] = np.indices(features.grid).reshape(2, -1)
            found[:, begin:done] += following
            following += max(features.grid)
        count_on(len(self.tokens))
        return found


def keys_of(prompt: Sequence[int]) -> Sequence[int]:
    """What cache rows of a prompt depend on: its tokens, or the keys of a mixed one."""
    return prompt.keys if isinstance(prompt, MixedPrompt) else prompt
