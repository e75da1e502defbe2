"""Logarithms of probabilities as the two APIs write them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from ..llm.engine import Event, TokenLogprob
from .vocabulary import Vocabulary

_LOWEST = -9999.0  # JSON has no minus infinity


def chat_logprobs(found: Sequence[TokenLogprob], vocabulary: Vocabulary) -> dict[str, Any]:
    """`logprobs` of a choice of a chat."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        data = vocabulary.token_bytes(token)
        return {"token": data.decode("utf-8", "replace"), "logprob": max(logprob, _LOWEST), "bytes": list(data)}

    return {
        "content": [
            {**entry(item.token, item.logprob), "top_logprobs": [entry(*pair) for pair in item.top]} for item in found
        ]
    }


def empty_logprobs() -> dict[str, list[Any]]:
    """`logprobs` of a choice of a completion that has no tokens yet."""
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


class CompletionLogprobs:
    """`logprobs` of a choice of a completion, piece by piece."""

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary, self._offset = vocabulary, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def begin_with(self, prompt: Sequence[int], text: str) -> None:
        """The choice begins with `text`, whose tokens are `prompt`; those that stand before it have no length in it."""
        whole = b"".join(map(self._vocabulary.token_bytes, prompt)).decode(errors="replace")
        self._offset = min(0, len(text) - len(whole))

    def add(self, event: Event, first: int | None = None) -> dict[str, list[Any]]:
        """Of an event's tokens; `first` is a token before them that nothing is known of, as a prompt begins."""
        made = empty_logprobs()
        if first is not None:
            self._add(made, first, None, None)
        for item in event.prompt_logprobs:
            self._add(made, item.token, item.logprob, item.top)
        for item in event.logprobs:
            self._add(made, item.token, item.logprob, item.top, is_answer=True)
        return made

    def _add(
        self,
        made: dict[str, list[Any]],
        token: int,
        logprob: float | None,
        top: Sequence[tuple[int, float]] | None,
        *,
        is_answer: bool = False,
    ) -> None:
        made["tokens"].append(self._text(token))
        made["token_logprobs"].append(None if logprob is None else max(logprob, _LOWEST))
        tops = None if top is None else {self._text(other): max(value, _LOWEST) for other, value in top}
        made["top_logprobs"].append(tops)
        made["text_offset"].append(max(0, self._offset))
        if not (is_answer and self._vocabulary.is_special(token)):  # which the text of an answer leaves out
            self._offset += len(self._decoder.decode(self._vocabulary.token_bytes(token)))

    def _text(self, token: int) -> str:
        data = self._vocabulary.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)  # OpenAI's way for a part of a character
