"""The loop: admit, prefill some chunks, decode one token of every slot."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..limited import one_line
from ..package import Package
from .answer import choose, judge_prompt, last_event
from .intake import Intake
from .prefixes import HostRows, Seat, choose_seat, take_newer_rows, take_seat
from .request import Event, Request, RequestError, SamplingParams, State
from .scheduler import Scheduler
from .slots import Slots
from .speculate import Drafter, Speculate, drafter_for, guess
from .stats import EngineStats


class Engine:
    """Requests over the slots of a package: continuous batching with prefill in chunks. Not thread-safe.

    Args:
        slots: The device side.
        tokenizer: Turns tokens into `Event.text`; needs `decode(ids, skip_special_tokens=True)`. None gives no text.
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
        self.reuse_prefixes = reuse_prefixes
        self.host_rows, self._drafter = HostRows(prefix_cache_bytes), drafter
        self.requests: dict[str, Request] = {}
        self.stats = EngineStats()
        self._scheduler = Scheduler(len(slots), max_waiting, chunks_per_step, static)
        self._events: list[Event] = []  # of the step being made
        self._ids = itertools.count()
        self._intake = Intake(
            slots.context_length, slots.vocab_size, slots.all_logits, tokenizer, self.stop_tokens
        )

    @classmethod
    def open(
        cls,
        package: Package | str | PathLike[str],
        *,
        name: str | None = None,
        devices: Sequence[int] = (0,),
        pipeline: bool = False,
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
            tokenizer: As above.
            stop_tokens: Those of the package's generation_config.json where there are none.
            speculate: As in `drafter_for`, whose errors it raises.
            options: As above.
        """
        if not isinstance(package, Package):
            package = Package.open(Path(package), name)
        if stop_tokens is None:
            defaults = package.generation_defaults.stop_tokens
            stop_tokens = defaults if tokenizer is None else package.stop_tokens(tokenizer)
        slots = Slots.open(package, devices=devices, pipeline=pipeline)
        if slots.verify_length or speculate != "auto":
            options.setdefault("drafter", drafter_for(package, speculate, slots.vocab_size, devices[0]))
        return cls(slots, tokenizer=tokenizer, stop_tokens=stop_tokens, **options)

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return bool(self.requests or self._events)

    @property
    def waiting(self) -> int:
        """Requests without a slot."""
        return len(self._scheduler.waiting)

    def snapshot(self) -> list[dict[str, Any]]:
        """One dict for each slot: slot, rows, request id (or None), state ("idle", "prefill" or "decode").

        Any thread may ask.
        """
        running = dict(self._scheduler.running)
        return [
            {
                "slot": slot,
                "rows": len(held),
                "request": running[slot].id if slot in running else None,
                "state": running[slot].state.value if slot in running else "idle",
            }
            for slot, held in enumerate(self.slots.tokens)
        ]

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
            prompt: Token ids.
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
        self._finish(request, Event(request_id=request.id, finish_reason="abort"))
        return True

    def step(self) -> list[Event]:
        """Does a bounded amount of work; returns what came of it, in the order of each answer.

        Admits what fits, runs prefill chunks, then one decode step, or a verify run, which can give a request several
        events. While nothing decodes it returns after a chunk, so that its caller can look for aborts.

        An error of the runtime ends the requests it belongs to, with an event; the engine goes on.
        """
        chunks = 0
        while True:
            self._admit()
            request = self._scheduler.next_prefill(chunks)
            if request is None:
                self._decode(self._scheduler.decoding())
                break
            self._prefill(request)
            chunks += 1
            if not self._scheduler.is_decoding:
                break
        events, self._events = self._events, []
        return events

    def _admit(self) -> None:
        while (request := self._scheduler.next_admission()) is not None:
            free = self._scheduler.free
            if self._may_reuse(request):
                seat = choose_seat(request.prompt, self.slots, free, self.host_rows)
            else:
                seat = Seat(free[0], 0, free[0])
            self._scheduler.admit(seat.slot)
            request.cached_tokens, request.admitted = seat.matched, perf_counter()
            self.stats.prompt_tokens += len(request.prompt)
            self.stats.cached_tokens += seat.matched
            try:
                take_seat(seat, request.prompt, self.slots, self.host_rows)
            except Exception as error:
                self.slots.tokens[seat.slot] = []
                self._fail(request, error)

    def _may_reuse(self, request: Request) -> bool:
        return self.reuse_prefixes and request.params.prompt_logprobs is None  # which every row's logits make

    def _prefill(self, request: Request) -> None:
        slot = request.slot
        self.stats.prefill_chunks += 1
        try:
            if self._may_reuse(request) and len(self.slots.tokens[slot]) == request.cached_tokens:  # the first chunk
                copied = take_newer_rows(request.prompt, slot, self.slots)
                request.cached_tokens += copied
                self.stats.cached_tokens += copied
            held = len(self.slots.tokens[slot])
            chunk = request.prompt[held : held + self.slots.chunk_length]
            begin = perf_counter()
            if request.params.prompt_logprobs is None:
                logits = self.slots.prefill(slot, chunk)
            else:
                every = self.slots.prefill_all(slot, chunk)
                logits = every[-1]
            self.stats.prefill_s += perf_counter() - begin
            if request.params.prompt_logprobs is not None:
                judge_prompt(request, held, every)
        except Exception as error:
            self.slots.tokens[slot] = []  # what the failed run wrote is unknown
            self._fail(request, error)
            return
        if held + len(chunk) == len(request.prompt):
            request.state = State.DECODE
            self._choose(request, logits)

    def _decode(self, requests: Sequence[Request]) -> None:
        if not requests or (len(requests) == 1 and self._verify(requests[0])):
            return
        self.stats.decode_steps += 1
        try:
            for slot in self._scheduler.free:
                self.slots.park(slot)
            begin = perf_counter()
            logits = self.slots.decode({request.slot: request.tokens[-1] for request in requests})
            self.stats.decode_s += perf_counter() - begin
        except Exception as error:
            # The run touched every slot. Those in mid-prefill begin again.
            self.slots.tokens[:] = [[] for _ in self.slots.tokens]
            for request in requests:
                self._fail(request, error)
            return
        self.stats.decode_tokens += len(requests)
        for request in requests:
            self._choose(request, logits[request.slot])

    def _verify(self, request: Request) -> bool:
        """Guesses tokens of a request and judges them; False where there is nothing to judge."""
        if self._drafter is None:
            return False
        slot, held = request.slot, self.slots.tokens[request.slot]
        known = len(held)
        try:
            guesses = guess(self._drafter, request, self.slots)
            if not guesses:
                return False
            begin = perf_counter()
            logits = self.slots.verify(slot, [request.tokens[-1], *guesses])
            self.stats.decode_s += perf_counter() - begin
        except Exception as error:
            self.slots.tokens[slot] = []
            self._fail(request, error)
            return True
        self.stats.verify_steps += 1
        self.stats.drafted_tokens += len(guesses)
        del held[known + 1 :]  # a row counts when its token has been chosen
        for i, after in enumerate(logits):
            self._choose(request, after)
            if request.state is State.DONE or i == len(guesses) or request.tokens[-1] != guesses[i]:
                break
            held.append(guesses[i])
            self.stats.accepted_tokens += 1
        return True

    def _choose(self, request: Request, logits: np.ndarray) -> None:
        """The next token of a request from logits [V]; ends the request where it ends."""
        held = self.slots.tokens[request.slot]
        try:
            event = choose(request, logits, held, self.stop_tokens, self.slots.context_length)
        except Exception as error:
            self._fail(request, error)
            return
        self.stats.completion_tokens += 1
        if event.finish_reason is None:
            self._events.append(event)
        else:
            self._finish(request, event)

    def _fail(self, request: Request, error: Exception) -> None:
        self._finish(request, Event(request_id=request.id, finish_reason="error", error=one_line(error)))

    def _finish(self, request: Request, event: Event) -> None:
        """Ends a request with its last event, which has a reason."""
        assert event.finish_reason is not None
        self._scheduler.remove(request)
        del self.requests[request.id]
        self._events.append(last_event(request, event))
        self.stats.finished[event.finish_reason] += 1
