"""One more token of an answer: choosing it, and whether it ends the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from ..sampling import log_probabilities
from .request import Event, Request, TokenLogprob


def choose(request: Request, logits: np.ndarray, text: Sequence[int]) -> int:
    """The next token of a request's answer.

    Args:
        request: Whose sampler and grammar choose.
        logits: [V].
        text: Prompt and answer so far, all in the caches.

    Raises:
        ValueError: A logit is NaN.
        NoTokenError: Bias and grammar forbid all tokens.
    """
    allowed = request.allowed(logits)
    token = request.sampler(logits, text, len(request.prompt), allowed)
    if request.params.rules is not None:
        values = logits[allowed].astype(np.float64)
        request.sum_logprob += float(logits[token] - values.max() - np.log(np.exp(values - values.max()).sum()))
    return token


def add_token(
    request: Request,
    token: int,
    logits: np.ndarray | None,
    rows: int,
    stop_tokens: Collection[int],
    context_length: int,
) -> Event:
    """Adds a token to a request's answer; the event says so, with a finish reason where the answer ends.

    Args:
        request: Whose answer.
        token: What `choose` gave.
        logits: [V], what it was chosen from; None where the request asks for no logprobs.
        rows: How many of its tokens the caches hold.
        stop_tokens: End tokens of the package.
        context_length: Rows of a slot.
    """
    params = request.params
    is_end = token in params.stop_token_ids or (token in stop_tokens and not params.ignore_eos)
    is_complete = request.matcher is not None and not is_end and request.matcher.accept(token)
    request.chosen += 1
    prompt_logprobs = tuple(request.prompt_logprobs) if request.chosen == 1 else ()
    if request.first_token is None:
        request.first_token = perf_counter()
    if is_end:
        return Event(request_id=request.id, prompt_logprobs=prompt_logprobs, finish_reason="stop", stop_reason=token)
    request.tokens.append(token)
    shown, stop = request.text.add(token, may_end=request.chosen > params.min_tokens) if request.text else ("", None)
    event = Event(
        request_id=request.id,
        token_ids=(token,),
        text=shown,
        logprobs=_logprobs(request, logits),
        prompt_logprobs=prompt_logprobs,
    )
    if stop is not None or is_complete:
        return replace(event, finish_reason="stop", stop_reason=stop)
    if request.chosen == params.max_tokens or rows >= context_length:
        return replace(event, finish_reason="length")
    return event


def last_event(request: Request, event: Event) -> Event:
    """Notes on a request that it is done; returns its last event with the text that was held back, and usage."""
    request.finish_reason, request.finished = event.finish_reason, perf_counter()
    rest = request.text.rest() if request.text and not isinstance(event.stop_reason, str) else ""
    queued_s = None if request.admitted is None else request.admitted - request.arrived
    likely = None if request.params.rules is None else request.sum_logprob
    return replace(event, text=event.text + rest, sum_logprob=likely, usage=request.usage, queued_s=queued_s)


def judge_prompt(request: Request, begin: int, logits: np.ndarray) -> None:
    """Notes how likely tokens of a prompt were, from logits [n, V] after its tokens `begin` to `begin + n`."""
    assert request.params.prompt_logprobs is not None
    for row, token in zip(logits, request.prompt[begin + 1 :], strict=False):  # none follows the last
        request.prompt_logprobs.append(_logprob(row, token, request.params.prompt_logprobs))


def _logprobs(request: Request, logits: np.ndarray | None) -> tuple[TokenLogprob, ...]:
    """Of the newest token of a request, which was chosen from logits [V]."""
    if request.params.logprobs is None:
        return ()
    assert logits is not None
    return (_logprob(logits, request.tokens[-1], request.params.logprobs, request.params.logprob_token_ids),)


def _logprob(logits: np.ndarray, token: int, count: int, others: Sequence[int] = ()) -> TokenLogprob:
    logprob, top = log_probabilities(logits, token, count, others)
    return TokenLogprob(token=token, logprob=logprob, top=tuple(top))
