"""An engine over an encoder: requests wait and run as those of a language model, but each is done after one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from ..engine.answer import last_event
from ..engine.request import Event, Request, RequestError, State
from ..engine.sampling_params import SamplingParams
from ..engine.scheduler import Scheduler
from ..engine.stats import EngineStats
from ..lora import Adapters
from ..prompt import check_prompt
from .encoder import Encoder
from .prompt import EncoderPrompt


class EncoderSlots:
    """What an engine's users ask of slots, of an encoder: a row of a batch is a slot, which keeps nothing.

    Attributes:
        encoder: Runs the texts.
        context_length: Tokens of a text.
        chunk_length: The same: a text is run at once.
        vocab_size: Number of tokens.
        hidden_size: Of a vector; 0 if the encoder gives scores.
        tokens: Of each slot; none, ever.
        adapter_of: Of each slot; none, ever.
        adapters: None.
    """

    def __init__(self, encoder: Encoder, vocab_size: int):
        self.encoder, self.vocab_size = encoder, encoder.facts.vocab_size or vocab_size
        self.context_length = self.chunk_length = encoder.longest
        self.hidden_size = 0 if encoder.ranks else encoder.width
        self.tokens: list[list[int]] = [[] for _ in range(encoder.batch)]
        self.adapter_of: list[str | None] = [None] * encoder.batch
        self.adapters = Adapters(())
        self.call: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self.tokens)

    def before_run(self, call: Callable[[], None]) -> None:
        """Has something called before each run, as `Slots.before_run`."""
        self.call = call


class EncoderEngine:
    """Requests over an encoder; for a `Driver`, as `Engine` is. Not thread-safe.

    A run takes the oldest request and those waiting behind it that run in a graph of the same length. The last event of
    a request has its vector or scores as `hidden`.

    Args:
        encoder: Used by nobody else.
        vocab_size: Of the tokenizer; a number in config.json counts instead.
        max_waiting: Requests that may wait; more are refused.

    Attributes:
        slots: The rows of a batch.
        requests: Not done yet, by id, oldest first.
        stats: Counts so far; `prefill_chunks` are runs.
        stop_tokens: None.
    """

    def __init__(self, encoder: Encoder, vocab_size: int, *, max_waiting: int | None = 256):
        self.slots, self.stats = EncoderSlots(encoder, vocab_size), EngineStats()
        self.stop_tokens = frozenset[int]()
        self.requests: dict[str, Request] = {}
        self._encoder, self._events = encoder, list[Event]()
        self._scheduler = Scheduler(encoder.batch, max_waiting)

    @property
    def has_work(self) -> bool:
        """Whether `advance` or `take_events` would do anything."""
        return bool(self.requests or self._events)

    @property
    def waiting(self) -> int:
        """Requests that are not running."""
        return len(self._scheduler.waiting)

    @property
    def capacity(self) -> float:
        """As `Engine.capacity`."""
        return self._scheduler.capacity

    def snapshot(self) -> list[dict[str, Any]]:
        """As `Engine.snapshot`; any thread may ask."""
        return self._scheduler.snapshot(lambda _, request: 0 if request is None else len(request.prompt))

    def check_room(self, requests: int) -> None:
        """As `Engine.check_room`."""
        self._scheduler.check_room(requests)

    def prepare(self, prompt: Sequence[int], params: SamplingParams | None, request_id: str) -> Request:
        """A request ready for `enqueue`; any thread may call it.

        Raises:
            RequestError: The prompt is empty, too long or of another vocabulary, or tokens are asked for.
        """
        params = SamplingParams(max_tokens=0) if params is None else params
        if params.max_tokens != 0:
            raise RequestError("this package is an encoder, which writes no text; ask for vectors or scores")
        if len(prompt) > (most := self.slots.context_length):
            raise RequestError(
                f"the prompt has {len(prompt)} tokens, the context holds {most}; shorten it, or compile with a larger "
                "--lengths if the model takes as many"
            )
        try:
            tokens = check_prompt(prompt, self.slots.context_length, self.slots.vocab_size)
        except ValueError as error:
            raise RequestError(str(error)) from None
        return Request(request_id, prompt if isinstance(prompt, EncoderPrompt) else tokens, params)

    def enqueue(self, request: Request) -> None:
        """Queues what `prepare` made."""
        self.check_room(len(self.requests))
        self._scheduler.waiting.append(request)
        self.requests[request.id] = request

    def abort(self, request_id: str) -> bool:
        """Ends a request; False: it is done."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        self._finish(request, Event(request_id=request.id, finish_reason="abort"))
        return True

    def advance(self) -> None:
        """Runs the oldest request and what fits beside it."""
        waiting = self._scheduler.waiting
        if not waiting:
            return
        length = self._encoder.length_of(waiting[0].prompt)
        fitting = [request for request in waiting if self._encoder.length_of(request.prompt) == length]
        group = fitting[: self._encoder.batch_of(length)]
        for slot, request in enumerate(group):
            waiting.remove(request)
            self._scheduler.running[slot] = request
            request.state, request.slot, request.admitted = State.PREFILL, slot, perf_counter()
        self.slots.call()
        begin = perf_counter()
        try:
            results = self._encoder.run([request.prompt for request in group])
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            for request in group:
                self._finish(request, Event(request_id=request.id, finish_reason="error", error=reason))
            return
        self.stats.prefill_s += perf_counter() - begin
        self.stats.prefill_chunks += 1
        for request, result in zip(group, results, strict=True):
            self.stats.prompt_tokens += len(request.prompt)
            self._finish(request, Event(request_id=request.id, hidden=result, finish_reason="length"))

    def take_events(self) -> list[Event]:
        """What has come since they were taken last."""
        events, self._events = self._events, []
        return events

    def _finish(self, request: Request, event: Event) -> None:
        assert event.finish_reason is not None
        self._scheduler.remove(request)
        del self.requests[request.id]
        self._events.append(last_event(request, event))
        self.stats.finished[event.finish_reason] += 1
