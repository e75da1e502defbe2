"""The loop: admit, prefill some chunks, decode one token of every slot."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..package import Package
from .intake import Intake
from .prefixes import HostRows
from .progress import Progress
from .request import Event, Request, RequestError
from .sampling_params import SamplingParams
from .scheduler import Scheduler
from .slots import Slots
from .speculate import Drafter, Speculate, drafter_for
from .stats import EngineStats


class Engine:
    """Requests over the slots of a package: continuous batching with prefill in chunks. Not thread-safe.

    Args:
        slots: The device side.
        tokenizer: Turns tokens into `Event.text`; needs `decode(ids, skip_special_tokens=...)`. None gives no text.
        stop_tokens: End tokens of the package: `Package.stop_tokens(tokenizer)`.
        max_waiting: Requests that may wait for a slot; more are refused.
        chunks_per_step: Prefill chunks K between two decode steps, so the pause of a running answer is at most K chunks
            and a step. None prefills all that is admitted first.
        static: Admit only when all slots are free (static batching), as a comparison.
        reuse_prefixes: Rows that some slot holds save the prefill of a prompt that begins alike.
        drafter: Guesses tokens, which a verify run judges while a single answer is being made; needs slots with a
            verify graph. Answers do not change.
        prefix_cache_bytes: Host memory for rows that leave their slots, which then save prefill as well; 0 keeps none.

    Attributes:
        slots: As given.
        requests: Not done yet, by id, oldest first.
        host_rows: What is kept in host memory; `used_bytes` and `len()` are for a server's page.
        stats: Counts so far.
    """

    def __init__(
        self,
        slots: Slots,
        *,
        tokenizer: Any = None,
        stop_tokens: Collection[int] = (),
        max_waiting: int | None = 256,
        chunks_per_step: int | None = 1,
        static: bool = False,
        reuse_prefixes: bool = True,
        prefix_cache_bytes: int = 0,
        drafter: Drafter | None = None,
    ):
        if drafter is not None and slots.verify_length < 2:
            raise ValueError("a drafter needs a verify graph of at least 2 tokens; compile with --verify-length T")
        self.slots, self.tokenizer, self.stop_tokens = slots, tokenizer, frozenset(stop_tokens)
        self.host_rows, self.stats = HostRows(prefix_cache_bytes), EngineStats()
        self._scheduler = Scheduler(len(slots), max_waiting, chunks_per_step, static)
        self._progress = Progress(
            slots,
            self._scheduler,
            self.stats,
            stop_tokens=self.stop_tokens,
            host_rows=self.host_rows,
            reuse_prefixes=reuse_prefixes,
            drafter=drafter,
        )
        self.requests = self._progress.requests
        self._ids = itertools.count()
        self._intake = Intake(slots, tokenizer, self.stop_tokens)

    @classmethod
    def open(
        cls,
        package: Package | str | PathLike[str],
        *,
        name: str | None = None,
        devices: Sequence[int] = (0,),
        pipeline: bool = False,
        adapters: Mapping[str, str | PathLike[str]] = MappingProxyType({}),
        tokenizer: Any = None,
        stop_tokens: Collection[int] | None = None,
        speculate: Speculate = "off",
        **options: Any,
    ) -> Engine:
        """An engine over a package folder.

        Args:
            package: A package or its folder.
            name: As in `Slots.open`, whose errors it raises.
            devices: As there.
            pipeline: As there.
            adapters: As there; requests name theirs (`SamplingParams.adapter`).
            tokenizer: As in `Engine`.
            stop_tokens: Those of the package's generation_config.json where there are none.
            speculate: As in `drafter_for`, whose errors it raises.
            options: Other arguments of `Engine`.
        """
        if not isinstance(package, Package):
            package = Package.open(Path(package), name)
        if stop_tokens is None:
            defaults = package.generation_defaults.stop_tokens
            stop_tokens = defaults if tokenizer is None else package.stop_tokens(tokenizer)
        slots = Slots.open(package, devices=devices, pipeline=pipeline, adapters=adapters)
        if slots.verify_length or speculate != "auto":
            options.setdefault("drafter", drafter_for(package, speculate, slots.vocab_size, devices[0], slots))
        return cls(slots, tokenizer=tokenizer, stop_tokens=stop_tokens, **options)

    @property
    def reuse_prefixes(self) -> bool:
        """Whether rows that some slot holds save prefill; may be set between two steps."""
        return self._progress.reuse_prefixes

    @reuse_prefixes.setter
    def reuse_prefixes(self, wanted: bool) -> None:
        self._progress.reuse_prefixes = wanted

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return bool(self.requests or self._progress.events)

    @property
    def waiting(self) -> int:
        """Requests without a slot."""
        return len(self._scheduler.waiting)

    def snapshot(self) -> list[dict[str, Any]]:
        """One dict for each slot: slot, rows, request id (or None), state ("idle", "prefill" or "decode").

        Any thread may ask.
        """
        return self._scheduler.snapshot(lambda slot, _: len(self.slots.tokens[slot]))

    @property
    def capacity(self) -> float:
        """Requests that may wait or run at the same time; infinity without a bound."""
        return self._scheduler.capacity

    @property
    def has_room(self) -> bool:
        """Whether `enqueue` would take a request."""
        return self._scheduler.has_room(len(self.requests))

    def check_room(self, requests: int) -> None:
        """Whether one more request may come while `requests` wait or run.

        Raises:
            QueueFullError: Too many requests wait.
        """
        self._scheduler.check_room(requests)

    def check(self, prompt: Sequence[int]) -> list[int]:
        """The prompt as a list of ints; any thread may call it.

        Raises:
            RequestError: It is empty, longer than the context, or has an id outside the vocabulary.
        """
        return self._intake.check(prompt)

    def prepare(self, prompt: Sequence[int], params: SamplingParams | None, request_id: str) -> Request:
        """A request ready for `enqueue`; any thread may call it, and a large grammar may take a second.

        Raises:
            RequestError: As `check`, or `params` asks for what this engine cannot do; llguidance is missing, or cannot
                use the schema.
        """
        return self._intake.prepare(prompt, params, request_id)

    def enqueue(self, request: Request) -> None:
        """Queues what `prepare` made.

        Raises:
            RequestError: The id is in use.
            QueueFullError: Too many requests wait.
        """
        if request.id in self.requests:
            raise RequestError(f"request id {request.id!r:.80} is in use")
        self.check_room(len(self.requests))
        self._scheduler.waiting.append(request)
        self.requests[request.id] = request

    def add(
        self, prompt: Sequence[int], params: SamplingParams | None = None, *, request_id: str | None = None
    ) -> Request:
        """Queues a request; its events come from `step`.

        Args:
            prompt: Token ids, or a `MixedPrompt`.
            params: Greedy without a limit where there are none; `SamplingParams.of(package.generation_defaults)` is
                what the checkpoint asks for.
            request_id: Of the caller's choosing; numbered where there is none.

        Raises:
            RequestError, QueueFullError: As `prepare` and `enqueue`.
        """
        if request_id is None:
            request_id = next(name for number in self._ids if (name := f"request-{number}") not in self.requests)
        request = self.prepare(prompt, params, request_id)
        self.enqueue(request)
        return request

    def abort(self, request_id: str) -> bool:
        """Ends a request; its slot is free for the next step, which returns its last event. False: it is done."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        self._progress.finish(request, Event(request_id=request.id, finish_reason="abort"))
        return True

    def step(self) -> list[Event]:
        """Does a bounded amount of work; returns what came of it, in the order of each answer.

        Admits what fits, runs prefill chunks, then one decode step, or a verify run, which can give a request several
        events. While nothing decodes it returns after a chunk, so that its caller can look for aborts.

        An error of the runtime ends the requests it belongs to, with an event; the engine goes on.
        """
        self.advance()
        return self.take_events()

    def advance(self) -> None:
        """As `step`, but leaves the events to `take_events`."""
        chunks = 0
        while True:
            self._progress.admit()
            request = self._scheduler.next_prefill(chunks)
            if request is None:
                self._progress.decode(self._scheduler.decoding())
                break
            self._progress.prefill(request)
            chunks += 1
            if not self._scheduler.is_decoding:
                break

    def take_events(self) -> list[Event]:
        """What has come since they were taken last; what `Slots.before_run` calls may ask while a step works on."""
        events, self._progress.events = self._progress.events, []
        return events
