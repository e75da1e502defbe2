"""Counts of tokens over the answers of one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..llm.engine import Event


class UsageCount:
    """`usage` of a response.

    Args:
        prompt_lengths: Tokens of each prompt; n answers to one prompt count it once.
        n: Answers to each.
    """

    def __init__(self, prompt_lengths: Sequence[int], n: int):
        self._prompt, self._n = sum(prompt_lengths), n
        self._chosen = [0] * (len(prompt_lengths) * n)
        self._cached = [0] * len(self._chosen)

    def add_prompt(self, length: int) -> None:
        """Counts one more prompt."""
        self._prompt += length
        self._chosen += [0] * self._n
        self._cached += [0] * self._n

    def add(self, index: int, event: Event) -> None:
        """Counts an event; the last one of an answer has the exact figures."""
        self._chosen[index] += len(event.token_ids)
        if event.usage is not None:
            self._chosen[index], self._cached[index] = event.usage.completion_tokens, event.usage.cached_tokens

    def body(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        completion = sum(self._chosen)
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": completion,
            "total_tokens": self._prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached[:: self._n])},
        }
