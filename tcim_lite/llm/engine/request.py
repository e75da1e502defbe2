"""What is asked of the engine, and what it answers."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from ..generation_defaults import GenerationDefaults
from ..mixed_prompt import MixedPrompt
from ..option_types import check_whole
from ..sampling import Sampler
from .answer_text import AnswerText
from .structured import Matcher, StructuredOutput

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


class Rules(Protocol):
    """What a kind of answers consists of, where that depends on how likely tokens are."""

    def allowed(self, answer: Sequence[int], logits: np.ndarray) -> np.ndarray:
        """Which tokens may follow those of an answer, [vocab] bool, if the graph gives these logits, [vocab]."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one answer is made, and where it ends.

    Attributes:
        max_tokens: tokens of the answer, a stop token included; None goes on until the context is full. With 0 the
            prompt alone is computed, for its logprobs, for its hidden states or for prompts that begin with it.
        min_tokens: tokens that come before anything may end the answer; a stop string complete before that is text.
        temperature: as in `Sampler`, as are the others up to `seed`.
        top_k: most likely tokens that are kept; 0 keeps all.
        top_p: probability of the tokens that are kept; 1 keeps all.
        min_p: tokens are kept if they are at least this times as likely as the likeliest; 0 keeps all.
        repetition_penalty: 1 changes nothing.
        presence_penalty: 0 changes nothing.
        frequency_penalty: 0 changes nothing.
        logit_bias: what is added to the logits, by token id.
        seed: of the request's own random generator. The same request with the same seed gets the same tokens in any
            slot and beside any others; None draws a fresh seed.
        stop: strings that end the answer, wherever their letters lie among tokens. They are not part of its text.
        stop_token_ids: end the answer besides the package's end tokens. They are not part of the answer.
        ignore_eos: the package's end tokens do not end the answer.
        logprobs: None, or how many of the likeliest tokens are told at each place, 0 to 20, with the logarithms of
            their probabilities as the graph gives them, before bias, penalties and temperature.
        logprob_token_ids: with `logprobs`, tokens whose logarithms are told in any case, behind the likeliest.
        prompt_logprobs: as `logprobs`, for the tokens of the prompt after the first. Needs a package whose prefill
            graph returns all logits; rows of other prompts are then not reused.
        structured: what the answer must look like.
        rules: what it consists of besides; None allows all tokens.
        skip_special_tokens: the text has no special tokens of the tokenizer.
        adapter: name of the LoRA that answers, one that the engine was opened with; None for the base model.

    Raises:
        ValueError: A value out of its range.
        TypeError: A value of another type.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] = ()
    prompt_logprobs: int | None = None
    structured: StructuredOutput | None = None
    rules: Rules | None = None
    skip_special_tokens: bool = True
    adapter: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_tokens", "min_tokens", "logprobs", "prompt_logprobs"):
            if (count := getattr(self, name)) is not None:
                check_whole(**{name: count})
        if not isinstance(self.structured, StructuredOutput | None):
            raise TypeError(f"structured={self.structured!r:.80}: expected a StructuredOutput")
        if not isinstance(self.adapter, str | None):
            raise TypeError(f"adapter={self.adapter!r:.80}: expected the name of an adapter, or None")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise ValueError(f"max_tokens={self.max_tokens}: expected 0 or more, or None for no limit")
        if not 0 <= self.min_tokens <= (math.inf if self.max_tokens is None else self.max_tokens):
            raise ValueError(f"min_tokens={self.min_tokens}: expected 0 to max_tokens")
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None and not 0 <= count <= 20:
                raise ValueError(f"{name}={count}: expected 0 to 20, or None for none")
        given = [self.stop] if isinstance(self.stop, str) else self.stop
        stop = tuple(given) if isinstance(given, Iterable) else (given,)
        if not all(isinstance(text, str) for text in stop):
            raise TypeError(f"stop={self.stop!r:.80}: expected a string or several")
        if not isinstance(self.stop_token_ids, Iterable):
            raise TypeError(f"stop_token_ids={self.stop_token_ids!r:.80}: expected token ids")
        if not all(stop):
            raise ValueError("stop: a string is empty; every answer would end at once")
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", frozenset(self.stop_token_ids))
        self.sampler()

    @classmethod
    def of(cls, defaults: GenerationDefaults, **changes: Any) -> SamplingParams:
        """What a package's generation_config.json says, with `changes` for what a request says itself.

        As `GenerationDefaults.sampler`: a checkpoint that does not sample gives greedy, unless `changes` has a
        temperature.
        """
        base: dict[str, Any] = {"repetition_penalty": defaults.repetition_penalty}
        if defaults.do_sample or changes.get("temperature"):
            base |= {name: getattr(defaults, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        return cls(**(base | changes))

    def sampler(self) -> Sampler:
        """A fresh sampler of these values, its generator at the beginning."""
        return Sampler(
            self.temperature,
            self.top_k,
            self.top_p,
            self.seed,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=self.logit_bias,
        )


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
        finish_reason: None until the last event of the request: "stop" (an end token, a stop string, or a
            grammar that is complete), "length" (max_tokens, or the
            context is full), "abort" or "error".
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
