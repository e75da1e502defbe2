"""What is asked of the engine, and what it answers."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..generation_defaults import GenerationDefaults
from ..sampling import Sampler

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
class SamplingParams:
    """How one answer is made, and where it ends.

    Attributes:
        max_tokens: tokens of the answer, a stop token included; None goes on until the context is full.
        temperature, top_k, top_p, min_p, repetition_penalty, seed: as in `Sampler`. A request has a generator of its
            own: the same request with the same seed gets the same tokens in any slot and beside any others.
        stop_token_ids: end the answer besides the package's end tokens. They are not part of the answer.
        ignore_eos: the package's end tokens do not end the answer.

    Raises:
        ValueError: A value out of its range.
    """

    max_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens={self.max_tokens}: expected at least 1, or None for no limit")
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
class Event:
    """What one step added to one request.

    Attributes:
        request_id: whose it is.
        token_ids: new tokens of the answer; without the stop token.
        text: new text; "" where the engine has no tokenizer, and while a character is incomplete. It may come later
            than its tokens.
        finish_reason: None until the last event of the request: "stop" (an end token), "length" (max_tokens, or the
            context is full), "abort" or "error".
        stop_reason: with "stop", the token id that ended the answer.
        error: with "error", what the runtime said, one line.
        usage: with the last event.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    usage: Usage | None = None


@dataclass(eq=False)
class Request:
    """One prompt on its way to its answer. The engine changes it; others read.

    Attributes:
        id: unique in its engine.
        prompt: token ids.
        params: how to answer.
        state: where it is.
        slot: number of its slot in PREFILL and DECODE, else -1.
        tokens: of the answer, so far.
        cached_tokens: of the prompt, found in a cache at admission.
        arrived, admitted, first_token, finished: `time.perf_counter()` of each, None until then.
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
        self.stream: Any = None  # its text, where the engine has a tokenizer

    @property
    def usage(self) -> Usage:
        """Counts so far."""
        return Usage(prompt_tokens=len(self.prompt), cached_tokens=self.cached_tokens, completion_tokens=self.chosen)
