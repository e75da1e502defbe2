"""Text as it grows: token ids in, printable pieces out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a decoder shows for half of a UTF-8 character
# So many tokens in a row are no character, and all but the last of them are shown: each step decodes what is held back.
_MOST_HELD, _LAST_HELD = 32, 8


class TextStream:
    """Turns tokens into text piece by piece, holding back a character until all its bytes are there.

    Bytes that are no text are shown, as replacement characters, once there are many of them.

    Args:
        tokenizer: Needs `decode(ids, skip_special_tokens=...)`.
        context: Tokens decoded again before each piece, because a decoder may treat the first token of a text
            differently.
        skip_special_tokens: Special tokens have no text.
    """

    def __init__(self, tokenizer: Any, context: int = 4, *, skip_special_tokens: bool = True):
        self._tokenizer, self._context, self._skips = tokenizer, context, skip_special_tokens
        self._ids: list[int] = []
        self._shown = 0  # tokens whose text has been given out

    def add(self, token: int) -> str:
        """The text that `token` completes; empty while a character is incomplete."""
        self._ids.append(token)
        start = max(0, self._shown - self._context)
        before = self._decode(start, self._shown)
        text = self._decode(start, len(self._ids))
        end = len(self._ids)
        if text.endswith(_INCOMPLETE):
            if end - self._shown < _MOST_HELD:
                return ""
            end -= _LAST_HELD
            whole, text = text, self._decode(start, end)
            if not whole.startswith(text):  # a character has begun in it
                return ""
        self._shown = end
        return text[len(before) :]

    def rest(self) -> str:
        """Whatever was held back, incomplete characters included."""
        start = max(0, self._shown - self._context)
        text = self._decode(start, len(self._ids))[len(self._decode(start, self._shown)) :]
        self._shown = len(self._ids)
        return text

    def _decode(self, start: int, stop: int) -> str:
        return self._tokenizer.decode(self._ids[start:stop], skip_special_tokens=self._skips)


def print_answer(tokens: Iterable[int], tokenizer: Any, *, as_ids: bool = False) -> str:
    """Prints an answer as it is made and returns its text.

    Args:
        tokens: Ids, as they come.
        tokenizer: What turns them into text.
        as_ids: Print the list of ids instead, when it is complete.
    """
    stream, ids, text = TextStream(tokenizer), [], ""
    for token in tokens:
        ids.append(token)
        piece = stream.add(token)
        text += piece
        if not as_ids:
            print(piece, end="", flush=True)
    rest = stream.rest()
    print(ids if as_ids else rest, flush=True)
    return text + rest
