"""What a request asks for: how its tokens are chosen, and when its answer ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..generation_defaults import GenerationDefaults
from ..option_types import check_whole
from ..sampling import Sampler
from .structured import StructuredOutput


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
