"""A list of prompts in, a list of answers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .engine import Engine
from .request import Event
from .sampling_params import SamplingParams


def answer_all(
    engine: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams] | None = None
) -> list[Event]:
    """Answers prompts, however many; each answer is one event with all its tokens, text and logprobs.

    Slots are refilled as answers end, or with `Engine(static=True)` when all have. A queue bound does not matter: what
    does not fit waits here.

    Args:
        engine: Without requests of its own.
        prompts: Token ids of each.
        params: For all, or of each; greedy where there are none. A seed given for all is the seed of each.

    Returns:
        In the order of `prompts`. One with the finish reason "error" says why in `error`; the others are not affected.

    Raises:
        ValueError: The engine has requests, or there are not as many params as prompts.
        RequestError: A prompt or its params cannot be answered; then none is.
    """
    if engine.has_work:
        raise ValueError(f"the engine has {len(engine.requests)} requests; answer_all needs one without")
    each = list(params) if isinstance(params, Sequence) else [params] * len(prompts)
    if len(each) != len(prompts):
        raise ValueError(f"{len(each)} params for {len(prompts)} prompts")
    names = [f"prompt-{number}" for number in range(len(prompts))]
    ready = [engine.prepare(*asked) for asked in zip(prompts, each, names, strict=True)]
    answers = {name: Event(request_id=name) for name in names}
    ready.reverse()
    while ready or engine.has_work:
        while ready and engine.has_room:
            engine.enqueue(ready.pop())
        for event in engine.step():
            known = answers[event.request_id]
            answers[event.request_id] = replace(
                event,
                token_ids=known.token_ids + event.token_ids,
                text=known.text + event.text,
                logprobs=known.logprobs + event.logprobs,
                prompt_logprobs=known.prompt_logprobs + event.prompt_logprobs,
            )
    return [answers[name] for name in names]
