"""What is asked of the engine, and what it answers."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..mixed_prompt import MixedPrompt
from .answer_text import AnswerText
from .sampling_params import SamplingParams
from .structured import Matcher

FinishReason = Literal["stop", "length", "abort", "error"]


class RequestError(ValueError):
    """A request that can never be answered, such as a prompt longer than the context; the message says why."""


class QueueFullError(RuntimeError):
    """A request that cannot be taken now; the same request may be taken later."""


class State(enum.Enum):
    """Where a request is. It only moves downwards."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one request.

    Attributes:
        prompt_tokens: of the prompt.
        cached_tokens: of these, the ones whose cache rows were there already.
        completion_tokens: chosen, a stop token included.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, kw_only=True)
class TokenLogprob:
    """How likely a token was, of all tokens at its place.

    Attributes:
        token: id.
        logprob: natural logarithm of its probability.
        top: the likeliest tokens at its place, likeliest first, each with its logarithm, as many as were asked for;
            then those of `SamplingParams.logprob_token_ids`.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Event:
    """What one step added to one request.

    Attributes:
        request_id: whose it is.
        token_ids: new tokens of the answer; without the stop token.
        text: new text; "" where the engine has no tokenizer, and while a character is incomplete. It may come later
            than its tokens, and ends before a stop string.
        logprobs: one for each of `token_ids`, where the request asks for them.
        prompt_logprobs: with the first event of an answer, one for each token of the prompt after the first, where the
            request asks for them.
        hidden: with the event of a prompt alone (max_tokens 0), if the graphs return hidden states: those of its last
            token, [H].
        finish_reason: None until the last event of the request: "stop" (an end token, a stop string, or a grammar that
            is complete), "length" (max_tokens, or the context is full), "abort" or "error".
        stop_reason: with "stop", the token id or the string that ended the answer; None for a grammar.
        error: with "error", what went wrong, one line.
        is_own_fault: with "error", True if the request itself is the cause (it allows no token, or its grammar became
            too large), False if the runtime failed.
        sum_logprob: with the last event, if the request has rules: the sum of the logarithms of the probabilities of
            its tokens, the end token included, among those that the rules and the grammar allowed.
        usage: with the last event.
        queued_s: with the last event, seconds from arrival to a slot; None where the request never had one.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    hidden: np.ndarray | None = field(default=None, compare=False)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    is_own_fault: bool = False
    sum_logprob: float | None = None
    usage: Usage | None = None
    queued_s: float | None = None


@dataclass(eq=False)
class Request:
    """One prompt on its way to its answer. The engine changes it; others read.

    Attributes:
        id: unique in its engine.
        prompt: token ids, or a mixed prompt.
        params: how to answer.
        state: where it is.
        slot: number of its slot, which it has in PREFILL and DECODE and had when it is DONE; -1 before.
        tokens: of the answer, so far.
        cached_tokens: of the prompt, found in a cache at admission.
        arrived: `time.perf_counter()` when it was made.
        admitted: the same when it got a slot; None until then, as for the next two.
        first_token: when its first token was chosen.
        finished: when it was done.
        finish_reason: as in `Event`.
    """

    id: str
    prompt: Sequence[int]
    params: SamplingParams
    state: State = State.WAITING
    slot: int = -1
    tokens: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    arrived: float = field(default_factory=time.perf_counter)
    admitted: float | None = None
    first_token: float | None = None
    finished: float | None = None
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.sampler = self.params.sampler()
        self.chosen = 0  # tokens, a stop token included
        self.sum_logprob = 0.0  # as in `Event`
        self.text: AnswerText | None = None  # where the engine has a tokenizer
        self.matcher: Matcher | None = None
        self.ends: tuple[int, ...] = ()  # tokens that end the answer; forbidden before min_tokens
        self.prompt_logprobs: list[TokenLogprob] = []

    @property
    def takes_largest(self) -> bool:
        """Whether the id of the largest logit is all that it needs of the logits after its newest token."""
        is_plain = self.sampler.takes_largest and self.params.logprobs is None and self.matcher is None
        return is_plain and self.params.rules is None and self._may_end

    @property
    def _may_end(self) -> bool:
        return self.chosen >= self.params.min_tokens or not self.ends

    def allowed(self, logits: np.ndarray) -> np.ndarray | None:
        """Which tokens may come next, [vocab] bool, by the grammar, the rules and min_tokens; None for all."""
        allowed = self.matcher.allowed() if self.matcher else None
        if self.params.rules is not None:
            own = self.params.rules.allowed(self.tokens, logits)
            allowed = own if allowed is None else own & allowed
        if self._may_end:
            return allowed
        allowed = np.ones(logits.size, bool) if allowed is None else allowed.copy()
        allowed[list(self.ends)] = False
        return allowed

    def chunk(self, held: int, most: int) -> tuple[Sequence[int], MixedPrompt | None]:
        """What its next run of prefill takes, of at most `most` tokens behind `held` others.

        Raises:
            ValueError: As `MixedPrompt.cut`.
        """
        if isinstance(self.prompt, MixedPrompt):
            return self.prompt.keys[held : self.prompt.cut(held, most)], self.prompt
        return self.prompt[held : held + most], None

    def text_of(self, held: Sequence[int]) -> Sequence[int]:
        """Prompt and answer as tokens, where a slot holds them."""
        return [*self.prompt, *self.tokens] if isinstance(self.prompt, MixedPrompt) else held

    @property
    def usage(self) -> Usage:
        """Counts so far."""
        return Usage(prompt_tokens=len(self.prompt), cached_tokens=self.cached_tokens, completion_tokens=self.chosen)
