"""The loop: admit, prefill some chunks, decode one token of every slot."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..limited import one_line
from ..package import Package
from ..text_stream import TextStream
from .request import Event, FinishReason, Request, RequestError, SamplingParams, State
from .scheduler import Scheduler
from .slots import Slots


@dataclass
class EngineStats:
    """Counts since the engine began.

    Attributes:
        decode_steps: runs of the decode graph.
        decode_tokens: tokens those gave; over `decode_steps` times the slots, it is how busy the slots were.
        prefill_chunks: runs of the prefill graph.
        prompt_tokens: of admitted requests.
        cached_tokens: of these, found in a slot or on the host.
        completion_tokens: chosen, stop tokens included.
        finished: requests by finish reason.
    """

    decode_steps: int = 0
    decode_tokens: int = 0
    prefill_chunks: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0))


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
        reuse_prefixes: Rows that a slot still holds save the prefill of a prompt that begins alike.

    Attributes:
        slots: As given.
        requests: Not done yet, by id, oldest first.
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
    ):
        self.slots, self.tokenizer, self.stop_tokens = slots, tokenizer, frozenset(stop_tokens)
        self.reuse_prefixes = reuse_prefixes
        self.requests: dict[str, Request] = {}
        self.stats = EngineStats()
        self._scheduler = Scheduler(len(slots), max_waiting, chunks_per_step, static)
        self._events: list[Event] = []  # of the step being made
        self._ids = itertools.count()

    @classmethod
    def open(
        cls,
        package: Package | str | PathLike[str],
        *,
        name: str | None = None,
        devices: Sequence[int] = (0,),
        tokenizer: Any = None,
        stop_tokens: Collection[int] | None = None,
        **options: Any,
    ) -> Engine:
        """An engine over a package folder; `name` and `devices` as in `Slots.open`, `options` as above.

        Without `stop_tokens`, those of the package's generation_config.json end an answer.
        """
        if not isinstance(package, Package):
            package = Package.open(Path(package), name)
        if stop_tokens is None:
            defaults = package.generation_defaults.stop_tokens
            stop_tokens = defaults if tokenizer is None else package.stop_tokens(tokenizer)
        slots = Slots.open(package, devices=devices)
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
        """One dict for each slot: slot, rows, request id (or None), state ("idle", "prefill" or "decode")."""
        running = self._scheduler.running
        return [
            {
                "slot": slot,
                "rows": len(held),
                "request": running[slot].id if slot in running else None,
                "state": running[slot].state.value if slot in running else "idle",
            }
            for slot, held in enumerate(self.slots.tokens)
        ]

    def check(self, prompt: Sequence[int]) -> list[int]:
        """The prompt as a list of ints.

        Raises:
            RequestError: It is empty, longer than the context, or has an id outside the vocabulary.
        """
        prompt, context = [int(token) for token in prompt], self.slots.context_length
        if not prompt:
            raise RequestError("the prompt is empty")
        if len(prompt) > context:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens, the context holds {context}; shorten it or compile with a "
                "larger --context-length"
            )
        bad = next((token for token in prompt if not 0 <= token < self.slots.vocab_size), None)
        if bad is not None:
            raise RequestError(
                f"token {bad} is outside the vocabulary of {self.slots.vocab_size}; is this the package's own "
                "tokenizer?"
            )
        return prompt

    def check_room(self, requests: int) -> None:
        """Whether one more request may come while `requests` wait or run.

        Raises:
            QueueFullError: Too many requests wait.
        """
        self._scheduler.check_room(requests)

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
            RequestError: As `check`, or the id is in use.
            QueueFullError: Too many requests wait.
        """
        if request_id is None:
            request_id = next(name for number in self._ids if (name := f"request-{number}") not in self.requests)
        elif request_id in self.requests:
            raise RequestError(f"request id {request_id!r:.80} is in use")
        request = Request(request_id, self.check(prompt), params or SamplingParams())
        self.check_room(len(self.requests))
        if self.tokenizer is not None:
            request.stream = TextStream(self.tokenizer)
        self._scheduler.waiting.append(request)
        self.requests[request_id] = request
        return request

    def abort(self, request_id: str) -> bool:
        """Ends a request; its slot is free for the next step, which returns its last event. False: it is done."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        self._finish(request, "abort")
        return True

    def step(self) -> list[Event]:
        """Does a bounded amount of work; returns what came of it, at most one event for each request but the last.

        Admits what fits, runs prefill chunks, then one decode step. While nothing decodes it returns after a chunk, so
        that its caller can look for aborts.

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
        while self._scheduler.next_admission() is not None:
            prompt = self._scheduler.waiting[0].prompt
            slot, matched = self._scheduler.choose_slot(prompt, self.slots.tokens)
            if not self.reuse_prefixes:
                matched = 0
            request = self._scheduler.admit(slot)
            del self.slots.tokens[slot][matched:]
            request.cached_tokens, request.admitted = matched, perf_counter()
            self.stats.prompt_tokens += len(prompt)
            self.stats.cached_tokens += matched

    def _prefill(self, request: Request) -> None:
        slot = request.slot
        held = len(self.slots.tokens[slot])
        chunk = request.prompt[held : held + self.slots.chunk_length]
        self.stats.prefill_chunks += 1
        try:
            logits = self.slots.prefill(slot, chunk)
        except Exception as error:
            self.slots.tokens[slot] = []  # what the failed run wrote is unknown
            self._fail(request, error)
            return
        if held + len(chunk) == len(request.prompt):
            request.state = State.DECODE
            self._choose(request, logits)

    def _decode(self, requests: Sequence[Request]) -> None:
        if not requests:
            return
        self.stats.decode_steps += 1
        try:
            logits = self.slots.decode({request.slot: request.tokens[-1] for request in requests})
        except Exception as error:
            # The run touched every slot. Those in mid-prefill begin again.
            self.slots.tokens[:] = [[] for _ in self.slots.tokens]
            for request in requests:
                self._fail(request, error)
            return
        self.stats.decode_tokens += len(requests)
        for request in requests:
            self._choose(request, logits[request.slot])

    def _choose(self, request: Request, logits: np.ndarray) -> None:
        """The next token of a request from logits [V]; ends the request where it ends."""
        held = self.slots.tokens[request.slot]
        try:
            token = request.sampler(logits, held)
        except Exception as error:
            self._fail(request, error)
            return
        request.chosen += 1
        self.stats.completion_tokens += 1
        if request.first_token is None:
            request.first_token = perf_counter()
        params = request.params
        if token in params.stop_token_ids or (token in self.stop_tokens and not params.ignore_eos):
            self._finish(request, "stop", stop_reason=token)
            return
        request.tokens.append(token)
        text = request.stream.add(token) if request.stream else ""
        if request.chosen == params.max_tokens or len(held) >= self.slots.context_length:
            self._finish(request, "length", (token,), text)
        else:
            self._events.append(Event(request_id=request.id, token_ids=(token,), text=text))

    def _fail(self, request: Request, error: Exception) -> None:
        self._finish(request, "error", error=one_line(error))

    def _finish(
        self, request: Request, reason: FinishReason, token_ids: tuple[int, ...] = (), text: str = "", **details: Any
    ) -> None:
        self._scheduler.remove(request)
        del self.requests[request.id]
        request.finish_reason, request.finished = reason, perf_counter()
        self.stats.finished[reason] += 1
        if request.stream:
            text += request.stream.rest()
        self._events.append(
            Event(
                request_id=request.id,
                token_ids=token_ids,
                text=text,
                finish_reason=reason,
                usage=request.usage,
                **details,
            )
        )
