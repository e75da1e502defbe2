"""What a step does to requests: gives them slots and rows, chooses their tokens, ends them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import perf_counter

import numpy as np

from ..limited import one_line
from ..mixed_prompt import MixedPrompt
from ..sampling import NoTokenError, check_logit
from .answer import add_token, choose, judge_prompt, last_event
from .prefixes import HostRows, Seat, choose_seat, take_newer_rows, take_seat
from .request import Event, Request, State
from .scheduler import Scheduler
from .slots import Slots
from .speculate import Drafter, guess
from .stats import EngineStats
from .structured import GrammarError


class Progress:
    """Moves the requests of an engine on, which decides what comes next. Not thread-safe.

    An error of the runtime ends the requests it belongs to, with an event, and is not raised.

    Args:
        slots: The device side.
        scheduler: Who waits and who runs.
        stats: Counted here.
        stop_tokens: End tokens of the package.
        host_rows: Rows kept in host memory.
        reuse_prefixes: As in `Engine`.
        drafter: As there.

    Attributes:
        reuse_prefixes: As given.
        requests: Not done yet, by id, oldest first.
        events: Since they were taken last, in the order of each answer.
    """

    def __init__(
        self,
        slots: Slots,
        scheduler: Scheduler,
        stats: EngineStats,
        *,
        stop_tokens: Collection[int],
        host_rows: HostRows,
        reuse_prefixes: bool,
        drafter: Drafter | None,
    ):
        self._slots, self._scheduler, self._stats = slots, scheduler, stats
        self._stop_tokens, self._host_rows = frozenset(stop_tokens), host_rows
        self.reuse_prefixes, self._drafter = reuse_prefixes, drafter
        self.requests: dict[str, Request] = {}
        self.events: list[Event] = []

    def admit(self) -> None:
        """Gives free slots to those who wait, with the rows that others made."""
        while (request := self._scheduler.next_admission()) is not None:
            free, adapter = self._scheduler.free, request.params.adapter
            if self._may_reuse(request):
                seat = choose_seat(request.prompt, self._slots, free, self._host_rows, adapter)
            else:
                seat = Seat(free[0], 0, free[0], adapter=adapter)
            self._scheduler.admit(seat.slot)
            request.cached_tokens, request.admitted = seat.matched, perf_counter()
            self._stats.prompt_tokens += len(request.prompt)
            self._stats.cached_tokens += seat.matched
            try:
                take_seat(seat, request.prompt, self._slots, self._host_rows)
            except Exception as error:
                self._slots.tokens[seat.slot] = []
                self._fail(request, error)

    def _may_reuse(self, request: Request) -> bool:
        return self.reuse_prefixes and request.params.prompt_logprobs is None  # which every row's logits make

    def prefill(self, request: Request) -> None:
        """Runs the next chunk of a prompt; the last gives the first token."""
        slot = request.slot
        self._stats.prefill_chunks += 1
        try:
            if self._may_reuse(request) and len(self._slots.tokens[slot]) == request.cached_tokens:  # the first chunk
                copied = take_newer_rows(request.prompt, slot, self._slots)
                request.cached_tokens += copied
                self._stats.cached_tokens += copied
            held = len(self._slots.tokens[slot])
            chunk, mixed = request.chunk(held, self._slots.chunk_length)
            begin = perf_counter()
            if request.params.prompt_logprobs is None:
                logits = self._slots.prefill(slot, chunk, mixed)
            else:
                every = self._slots.prefill_all(slot, chunk, mixed)
                logits = every[-1]
            self._stats.prefill_s += perf_counter() - begin
            if request.params.prompt_logprobs is not None:
                judge_prompt(request, held, every)
        except Exception as error:
            self._slots.tokens[slot] = []  # what the failed run wrote is unknown
            self._fail(request, error)
            return
        if held + len(chunk) == len(request.prompt):
            request.state = State.DECODE
            if request.params.max_tokens == 0:
                hidden = logits.copy() if self._slots.hidden_size else None
                judged = tuple(request.prompt_logprobs)
                event = Event(request_id=request.id, prompt_logprobs=judged, hidden=hidden, finish_reason="length")
                self.finish(request, event)
                return
            self._choose(request, logits)

    def decode(self, requests: Sequence[Request]) -> None:
        """One token more of each, or a verify run where one answer is alone and its tokens can be guessed."""
        if not requests or (len(requests) == 1 and self._verify(requests[0])):
            return
        self._stats.decode_steps += 1
        try:
            if len(requests) > 1 or not self._slots.alone_by_prefill:
                for slot in self._scheduler.free:
                    self._slots.park(slot)
            newest = {request.slot: request.tokens[-1] for request in requests}
            only_largest = self._slots.gives_largest and all(request.takes_largest for request in requests)
            begin = perf_counter()
            if only_largest:
                ids, largest = self._slots.decode_greedy(newest)
            else:
                logits = self._slots.decode(newest)
            self._stats.decode_s += perf_counter() - begin
        except Exception as error:
            # The run touched every slot. Those in mid-prefill begin again.
            self._slots.tokens[:] = [[] for _ in self._slots.tokens]
            for request in requests:
                self._fail(request, error)
            return
        self._stats.decode_tokens += len(requests)
        for request in requests:
            if only_largest:
                self._choose(request, None, (int(ids[request.slot]), largest[request.slot]))
            else:
                self._choose(request, logits[request.slot])

    def _verify(self, request: Request) -> bool:
        """Guesses tokens of a request and judges them; False where there is nothing to judge."""
        if self._drafter is None or isinstance(request.prompt, MixedPrompt):  # what guesses knows no features
            return False
        slot, held = request.slot, self._slots.tokens[request.slot]
        known = len(held)
        try:
            guesses = guess(self._drafter, request, self._slots)
            if not guesses:
                return False
            begin = perf_counter()
            logits = self._slots.verify(slot, [request.tokens[-1], *guesses])
            self._stats.decode_s += perf_counter() - begin
        except Exception as error:
            self._slots.tokens[slot] = []
            self._fail(request, error)
            return True
        self._stats.verify_steps += 1
        self._stats.drafted_tokens += len(guesses)
        del held[known + 1 :]  # a row counts when its token has been chosen
        for i, after in enumerate(logits):
            self._choose(request, after)
            if request.state is State.DONE or i == len(guesses) or request.tokens[-1] != guesses[i]:
                break
            held.append(guesses[i])
            self._stats.accepted_tokens += 1
        return True

    def _choose(
        self, request: Request, logits: np.ndarray | None, largest: tuple[int, np.floating] | None = None
    ) -> None:
        """The next token of a request from logits [V], or `largest`, an id and its logit; may end the request."""
        held = self._slots.tokens[request.slot]
        try:
            if largest is not None:
                token, logit = largest
                check_logit(token, logit)
            else:
                assert logits is not None
                token = choose(request, logits, request.text_of(held))
            event = add_token(request, token, logits, len(held), self._stop_tokens, self._slots.context_length)
        except Exception as error:
            self._fail(request, error)
            return
        self._stats.completion_tokens += 1
        if event.finish_reason is None:
            self.events.append(event)
        else:
            self.finish(request, event)

    def _fail(self, request: Request, error: Exception) -> None:
        own = isinstance(error, (NoTokenError, GrammarError))
        event = Event(request_id=request.id, finish_reason="error", error=one_line(error), is_own_fault=own)
        self.finish(request, event)

    def finish(self, request: Request, event: Event) -> None:
        """Ends a request with its last event, which has a reason."""
        assert event.finish_reason is not None
        self._scheduler.remove(request)
        del self.requests[request.id]
        self.events.append(last_event(request, event))
        self._stats.finished[event.finish_reason] += 1
