"""The text of an answer as it grows, held back where it may be the beginning of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..text_stream import TextStream


class AnswerText:
    """Tokens in, printable pieces out, until a stop string is complete.

    Args:
        tokenizer: Needs `decode(ids, skip_special_tokens=...)`.
        stop: Strings that end the answer and are not part of it, wherever their letters lie among tokens.
        skip_special_tokens: Special tokens have no text.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), *, skip_special_tokens: bool = True):
        self._stream = TextStream(tokenizer, skip_special_tokens=skip_special_tokens)
        self._stop = tuple(stop)
        self._held = ""

    def add(self, token: int, *, may_end: bool = True) -> tuple[str, str | None]:
        """The text that `token` completes, and the stop string that ends the answer, or None.

        A stop string that is complete while the answer may not end is text.
        """
        old = len(self._held)
        text = self._held + self._stream.add(token)
        stops = self._stop if may_end else ()
        # What ends among the held characters was complete before.
        ends = [(text.find(stop, max(old - len(stop) + 1, 0)), -len(stop), stop) for stop in stops]
        found = [end for end in ends if end[0] >= 0]
        if found:  # the first, and among those that begin there the longest
            at, _, stop = min(found)
            self._held = ""
            return text[:at], stop
        held = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], None

    def rest(self) -> str:
        """What was held back, incomplete characters included; the answer has ended otherwise."""
        held, self._held = self._held, ""
        return held + self._stream.rest()


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
