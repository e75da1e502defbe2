"""Logarithms of probabilities as the two APIs write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..llm.engine import TokenLogprob
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


class CompletionLogprobs:
    """`logprobs` of a choice of a completion, piece by piece."""

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary, self._offset = vocabulary, 0

    def add(self, found: Sequence[TokenLogprob], first: int | None = None) -> dict[str, Any]:
        """Of the next tokens; `first` is a token before them that nothing is known of, as a prompt begins."""
        made: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        if first is not None:
            made = {
                "tokens": [self._text(first)], "token_logprobs": [None], "top_logprobs": [None],
                "text_offset": [self._offset],
            }  # fmt: skip
            self._offset += len(self._text(first))
        for item in found:
            text = self._text(item.token)
            made["tokens"].append(text)
            made["token_logprobs"].append(max(item.logprob, _LOWEST))
            made["top_logprobs"].append({self._text(token): max(value, _LOWEST) for token, value in item.top})
            made["text_offset"].append(self._offset)
            self._offset += len(text)
        return made

    def _text(self, token: int) -> str:
        data = self._vocabulary.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)  # OpenAI's way for a part of a character
