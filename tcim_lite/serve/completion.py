"""/v1/completions: from a prompt in any of its forms to token ids, from events to choices."""

from __future__ import annotations

from typing import Any

from ..llm.engine import Event
from .errors import ApiError
from .logprobs import CompletionLogprobs, empty_logprobs
from .protocol import CompletionRequest, Prompts
from .vocabulary import Vocabulary


def prompt_count(given: Prompts) -> int:
    """How many prompts there are; one where none can be told."""
    return 1 if isinstance(given, str) or not given or isinstance(given[0], int) else len(given)


def completion_prompts(given: Prompts, vocabulary: Vocabulary, most: int, field: str = "prompt") -> list[list[int]]:
    """Token ids of every prompt, which the body has in `field`.

    Raises:
        ApiError: The list is empty, or mixes texts and tokens; a text has more than `most` tokens by far.
    """
    if isinstance(given, str):
        return [vocabulary.encode_prompt(given, special=True, most=most)]
    if given and all(isinstance(item, int) for item in given):
        return [[item for item in given if isinstance(item, int)]]
    prompts = [item for item in given if not isinstance(item, int)]
    if not prompts or len(prompts) < len(given):
        raise ApiError(400, f"{field}: expected a text, a list of token ids, or a list of either", param=field)
    return [
        vocabulary.encode_prompt(item, special=True, most=most) if isinstance(item, str) else item for item in prompts
    ]


def _texts(request: CompletionRequest, count: int) -> list[str | None]:
    """The prompts as they were written; None for one given as tokens."""
    given = [request.prompt] if isinstance(request.prompt, str) else request.prompt
    return [item if isinstance(item, str) else None for item in given] if len(given) == count else [None] * count


class CompletionReply:
    """The choices of one response.

    Args:
        prompts: Token ids.
        n: Choices of each prompt.
    """

    prefix, kind, chunk_kind = "cmpl-", "text_completion", "text_completion"

    def __init__(self, request: CompletionRequest, prompts: list[list[int]], n: int, vocabulary: Vocabulary):
        echo = [""] * len(prompts)
        if request.echo:
            echo = [
                vocabulary.decode(prompt, skip_special_tokens=False) if text is None else text
                for prompt, text in zip(prompts, _texts(request, len(prompts)), strict=True)
            ]
        self._begun = [echo[index // n] for index in range(len(prompts) * n)]
        self._text = list(self._begun)
        self._has_logprobs = request.logprobs is not None
        self._logprobs = [CompletionLogprobs(vocabulary) for _ in self._begun]
        if request.echo and self._has_logprobs:
            for index, logprobs in enumerate(self._logprobs):
                logprobs.begin_with(prompts[index // n], self._begun[index])
        # The first token of each prompt whose logprobs the choice's first event brings.
        self._echoed = [
            prompts[index // n][0] if request.echo and self._has_logprobs else None for index in range(len(self._begun))
        ]
        self._found: list[dict[str, list[Any]]] = [empty_logprobs() for _ in self._begun]
        self._ends: list[tuple[str, int | str | None]] = [("", None)] * len(self._begun)

    def begin(self) -> list[dict[str, Any]]:
        """The choices of a stream before any token: the prompts that are echoed."""
        # With logprobs they come with the first token, which has those of the prompt.
        texts = () if self._has_logprobs else self._begun
        return [self._choice(index, text, None) for index, text in enumerate(texts) if text]

    def add(self, index: int, event: Event) -> list[dict[str, Any]]:
        """What an event adds to a choice, as choices of a stream."""
        self._text[index] += event.text
        shown, found = event.text, None
        if self._has_logprobs:
            first, self._echoed[index] = self._echoed[index], None
            if first is not None:
                shown = self._begun[index] + shown
            found = self._logprobs[index].add(event, first)
            for name, values in found.items():
                self._found[index][name] += values
        if event.finish_reason is not None:
            self._ends[index] = (event.finish_reason, event.stop_reason)
        elif not shown and not event.logprobs:
            return []
        return [self._choice(index, shown, found)]

    def choices(self) -> list[dict[str, Any]]:
        """The choices of a response in one piece."""
        logprobs = self._found if self._has_logprobs else [None] * len(self._text)
        return [self._choice(index, text, logprobs[index]) for index, text in enumerate(self._text)]

    def _choice(self, index: int, text: str, logprobs: dict[str, list[Any]] | None) -> dict[str, Any]:
        reason, stop = self._ends[index]
        made = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason or None}
        return {**made, "stop_reason": stop} if reason else made
