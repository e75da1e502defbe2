"""Who comes next: pure decisions, no device."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .request import QueueFullError, Request, State

_STEPS_IN_TURN = 4  # of one adapter, while others wait: a change writes all inputs of the adapter


@dataclass
class Scheduler:
    """First come, first served; no request leaves its slot before it is done.

    A decode step has one adapter, or none. Where requests in the slots have several, these take turns of a few steps.

    Attributes:
        slot_count: slots of the device.
        max_waiting: requests that may wait; None sets no bound.
        chunks_per_step: prefill chunks between two decode steps; None prefills every admitted prompt first.
        static: a slot is given away only when all slots are free, as a comparison. Prompts are prefilled first then.
        waiting: not admitted yet, oldest first.
        running: by slot number, in the order of admission.
    """

    slot_count: int
    max_waiting: int | None = 256
    chunks_per_step: int | None = 1
    static: bool = False
    waiting: deque[Request] = field(default_factory=deque)
    running: dict[int, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_waiting is not None and self.max_waiting < 0:
            raise ValueError(f"max_waiting={self.max_waiting}: expected 0 or more, or None for no bound")
        if self.chunks_per_step is not None and self.chunks_per_step < 1:
            raise ValueError(f"chunks_per_step={self.chunks_per_step}: expected at least 1, or None for all")
        self._filling = False  # static: the batch is being put together
        self._idle_since = {slot: slot - self.slot_count for slot in range(self.slot_count)}
        self._releases = 0
        self._adapter: str | None = None  # whose turn it is
        self._steps = 0  # of it
        self._had_turns: list[str | None] = [None]  # the latest last

    @property
    def capacity(self) -> float:
        """Requests that may wait or run at the same time; infinity without a bound."""
        return math.inf if self.max_waiting is None else self.max_waiting + self.slot_count

    def snapshot(self, rows: Callable[[int, Request | None], int]) -> list[dict[str, Any]]:
        """What `Engine.snapshot` shows; `rows` counts those that a slot holds, of its number and its request."""
        running = dict(self.running)
        requests = [running.get(slot) for slot in range(self.slot_count)]
        return [
            {
                "slot": slot,
                "rows": rows(slot, request),
                "request": None if request is None else request.id,
                "state": "idle" if request is None else request.state.value,
            }
            for slot, request in enumerate(requests)
        ]

    def has_room(self, requests: int) -> bool:
        """Whether one more may come while `requests` wait or run."""
        return requests < self.capacity

    def check_room(self, requests: int) -> None:
        """Whether one more may come while `requests` wait or run.

        Raises:
            QueueFullError: The queue is at its bound, and no slot is free.
        """
        if not self.has_room(requests):
            raise QueueFullError(
                f"{requests} requests wait or are being answered; {self.slot_count} slots and a queue of "
                f"{self.max_waiting} take no more. Try again later, or raise max_waiting"
            )

    def next_admission(self) -> Request | None:
        """The oldest waiting request if a slot may be given to it now."""
        if self.static and not self.running:
            self._filling = True
        if not self.waiting or len(self.running) == self.slot_count or (self.static and not self._filling):
            return None
        return self.waiting[0]

    def admit(self, slot: int) -> Request:
        """Moves the oldest waiting request into a free slot."""
        request = self.waiting.popleft()
        request.state, request.slot = State.PREFILL, slot
        self.running[slot] = request
        return request

    @property
    def free(self) -> list[int]:
        """Slots without a request, the one that has been idle longest first."""
        slots = [slot for slot in range(self.slot_count) if slot not in self.running]
        return sorted(slots, key=self._idle_since.__getitem__)

    @property
    def is_decoding(self) -> bool:
        """Whether any slot waits for its next token."""
        return any(request.state is State.DECODE for request in self.running.values())

    def next_prefill(self, chunks_done: int) -> Request | None:
        """Whose prompt gets the next chunk, the oldest first; None when it is time to decode."""
        limit = None if self.static else self.chunks_per_step
        filling = next((request for request in self.running.values() if request.state is State.PREFILL), None)
        if filling is not None and limit is not None and chunks_done >= limit and self.is_decoding:
            return None
        return filling

    def decoding(self) -> list[Request]:
        """Requests that take part in the next decode step: those of the adapter whose turn it is."""
        self._filling = False
        ready = [request for request in self.running.values() if request.state is State.DECODE]
        adapters = dict.fromkeys(request.params.adapter for request in ready)
        if adapters and (self._adapter not in adapters or (len(adapters) > 1 and self._steps >= _STEPS_IN_TURN)):
            had = self._had_turns
            self._adapter = min(adapters, key=lambda name: had.index(name) if name in had else -1)
            self._had_turns = [*(name for name in had if name != self._adapter), self._adapter]
            self._steps = 0
        self._steps += 1
        return [request for request in ready if request.params.adapter == self._adapter]

    def remove(self, request: Request) -> None:
        """Takes a request out of the queue or its slot; the request is done."""
        if request.state is State.WAITING:
            self.waiting.remove(request)
        else:
            del self.running[request.slot]
            self._releases += 1
            self._idle_since[request.slot] = self._releases
        request.state = State.DONE
