"""One answer at a terminal: the engine driven by this thread, text as it comes, what it cost."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .adapters import adapters_of
from .opening import devices_of, speculate_of

if TYPE_CHECKING:
    import argparse

    from ..llm.engine import Engine, Event, SamplingParams
    from ..llm.engine.request import TokenLogprob
    from ..llm.package import Package


def open_engine(args: argparse.Namespace, package: Package, tokenizer: Any) -> Engine:
    """The engine of the command line: on its devices, with its adapters and what it guesses tokens with.

    Raises:
        FileNotFoundError, TcimError, ValueError: As `Engine.open` and `adapters_of`.
    """
    from ..llm.engine import Engine

    return Engine.open(
        package,
        devices=devices_of(args),
        pipeline=args.pipeline,
        adapters=adapters_of(args, package),
        tokenizer=tokenizer,
        speculate=speculate_of(args),
    )


@dataclass
class Answer:
    """What came of one request.

    Attributes:
        text: without the stop string.
        tokens: without the stop token.
        logprobs: of `tokens`, where they were asked for.
        last: the event with the finish reason and the counts.
        elapsed_s: seconds from the request to the end.
        first_s: seconds to the first token.
        token_s: seconds from the request to each of `tokens`.
        drafted: guesses of tokens that were judged.
        accepted: of these, the ones that became tokens.
    """

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    last: Event | None = None
    elapsed_s: float = 0.0
    first_s: float = 0.0
    token_s: list[float] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0

    def stats(self, device: str, dtype: str) -> dict[str, Any]:
        """The figures of the line that generate prints; a stop token counts as generated."""
        assert self.last is not None
        assert self.last.usage is not None
        usage = self.last.usage
        guesses = {"drafted_tokens": self.drafted, "accepted_tokens": self.accepted} if self.drafted else {}
        return {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "generated_tokens": usage.completion_tokens,
            **guesses,
            "elapsed_seconds": round(self.elapsed_s, 3),
            "tokens_per_second": round(usage.completion_tokens / self.elapsed_s, 2),
            "ttft_ms": round(self.first_s * 1e3, 1),
            "device": device,
            "dtype": dtype,
        }


def prompt_end(tokenizer: Any, prompt: Sequence[int]) -> str:
    """The end of a prompt as text, which says what form the reply has."""
    return str(tokenizer.decode(prompt[-8:]))


def with_channels(tokenizer: Any, prompt: list[int], params: SamplingParams) -> tuple[list[int], SamplingParams]:
    """Prompt and parameters for a model that writes channels: their tags are in the text, and with a grammar the reply
    begins in the channel of the answer. Those of other models are as given."""
    from ..serve.channels import before_answer
    from ..serve.reply_forms import end_tags

    end = prompt_end(tokenizer, prompt)
    if end_tags(end) is None:
        return prompt, params
    if params.structured is not None and (tags := before_answer(end)):
        prompt = [*prompt, *tokenizer(tags, add_special_tokens=False)["input_ids"]]
    return prompt, replace(params, skip_special_tokens=False)


def answer(
    engine: Engine,
    prompt: Sequence[int],
    params: SamplingParams,
    on_text: Callable[[str], None],
    is_stopped: Callable[[], bool] = lambda: False,
) -> Answer:
    """Answers one prompt; `on_text` gets the text as it comes. Looks at `is_stopped` after every step.

    Raises:
        RequestError: As `Engine.add`.
        RuntimeError: The runtime failed; the message is its own.
    """
    made, started, before = Answer(), perf_counter(), replace(engine.stats)
    request = engine.add(prompt, params)
    while engine.has_work:
        if is_stopped():
            engine.abort(request.id)
        for event in engine.step():
            if not made.first_s and (event.token_ids or event.finish_reason is not None):  # it may be a stop token
                made.first_s = perf_counter() - started
            made.tokens.extend(event.token_ids)
            made.token_s += [perf_counter() - started] * len(event.token_ids)
            made.logprobs.extend(event.logprobs)
            made.text += event.text
            if event.text:
                on_text(event.text)
            if event.finish_reason is not None:
                made.last = event
    made.elapsed_s = perf_counter() - started
    made.drafted = engine.stats.drafted_tokens - before.drafted_tokens
    made.accepted = engine.stats.accepted_tokens - before.accepted_tokens
    if made.last is None or made.last.finish_reason == "error":
        raise RuntimeError((made.last and made.last.error) or "the engine has ended")
    return made


def stats_line(stats: dict[str, Any]) -> str:
    """`name=value` after `name=value`."""
    return " ".join(f"{name}={value}" for name, value in stats.items())


def device_name(devices: Sequence[int]) -> str:
    """Such as `cpu:0` or `cuda:0,1`."""
    return f"{os.environ.get('TCIM_LITE_DEVICE') or 'cpu'}:{','.join(map(str, devices))}"


def show(text: str) -> None:
    """Prints a piece of an answer; at a terminal, control characters are no commands."""
    if sys.stdout.isatty():
        text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", text)
    print(text, end="", flush=True)
