"""Several engines of one package side by side, each on devices of its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import fields
from time import monotonic
from typing import Any

from .driver import Driver
from .prefixes import WORTH_COPYING, matches_of
from .request import Event
from .sampling_params import SamplingParams
from .stats import EngineStats


class Replicas:
    """Gives every request to one of several drivers; to their users they are one. Every method is thread-safe.

    A request goes to a replica with a free slot: to the one whose slots hold the longest beginning of its prompt, or
    else the one with the least to do. Where all slots are in use it waits in the shortest queue, and stays there. Which
    replica answers does not change an answer.

    Args:
        drivers: One or more, over engines of the same package.

    Attributes:
        drivers: As given.
        slots: Of the first, for what is equal in all: `context_length`, `chunk_length`, `vocab_size`.
        stop_tokens: As those of an engine.

    Raises:
        ValueError: No drivers, or they differ in context or vocabulary.
    """

    def __init__(self, drivers: Sequence[Driver]):
        if not drivers:
            raise ValueError("drivers is empty; give at least one")
        sizes = {(driver.engine.slots.context_length, driver.engine.slots.vocab_size) for driver in drivers}
        if len(sizes) > 1:
            raise ValueError(f"replicas of different (context, vocabulary): {sorted(sizes)}; use one package for all")
        self.drivers = list(drivers)
        self.slots = self.drivers[0].engine.slots
        self.stop_tokens = self.drivers[0].engine.stop_tokens
        self._ids = itertools.count()
        self._of: dict[str, Driver] = {}  # by request id
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        """Whether all threads run."""
        return all(driver.is_alive for driver in self.drivers)

    @property
    def pending(self) -> int:
        """Requests that are not done, waiting ones included."""
        return sum(driver.pending for driver in self.drivers)

    @property
    def waiting(self) -> int:
        """Requests without a slot."""
        return sum(driver.engine.waiting for driver in self.drivers)

    @property
    def stats(self) -> EngineStats:
        """Sums over all engines."""
        total = EngineStats()
        for stats in (driver.engine.stats for driver in self.drivers):
            for name in (field.name for field in fields(stats) if field.name != "finished"):
                setattr(total, name, getattr(total, name) + getattr(stats, name))
            for reason, count in stats.finished.items():
                total.finished[reason] += count
        return total

    @property
    def capacity(self) -> float:
        """Requests that may wait or be answered at the same time; infinity without a bound."""
        return sum(driver.engine.capacity for driver in self.drivers)

    def snapshot(self) -> list[dict[str, Any]]:
        """As `Engine.snapshot`, the slots of all replicas numbered on, with the number of the replica."""
        slots: list[dict[str, Any]] = []
        for number, driver in enumerate(self.drivers):
            begin = len(slots)
            slots += [{**slot, "slot": begin + slot["slot"], "replica": number} for slot in driver.engine.snapshot()]
        return slots

    def submit(self, prompt: Sequence[int], params: SamplingParams | None, on_event: Callable[[Event], None]) -> str:
        """As `Driver.submit`, whose errors it raises: `QueueFullError` where the chosen replica takes no more."""
        request_id = f"request-{next(self._ids)}"

        def forward(event: Event) -> None:
            if event.finish_reason is not None:
                with self._lock:
                    self._of.pop(request_id, None)
            on_event(event)

        with self._lock:
            driver = self._of[request_id] = self._choose(prompt, params.adapter if params else None)
        try:
            return driver.submit(prompt, params, forward, request_id=request_id)
        except BaseException:
            with self._lock:
                self._of.pop(request_id, None)
            raise

    def abort(self, request_id: str) -> None:
        """As `Driver.abort`."""
        with self._lock:
            driver = self._of.get(request_id)
        if driver is not None:
            driver.abort(request_id)

    def close(self, *, finish: bool = False, timeout: float | None = None) -> bool:
        """As `Driver.close`, of all at once."""
        end = None if timeout is None else monotonic() + timeout
        lasting = [driver for driver in self.drivers if not driver.close(finish=finish, timeout=0.0)]
        left = [driver.close(finish=finish, timeout=end and max(0.0, end - monotonic())) for driver in lasting]
        return all(left)

    def _choose(self, prompt: Sequence[int], adapter: str | None) -> Driver:
        if len(self.drivers) == 1:
            return self.drivers[0]
        load = [sum(other is driver for other in self._of.values()) for driver in self.drivers]
        numbers = range(len(self.drivers))
        free = [number for number in numbers if load[number] < len(self.drivers[number].engine.slots)]

        def gain(number: int) -> int:
            rows = max(matches_of(prompt, adapter, self.drivers[number].engine.slots))
            return rows if rows >= WORTH_COPYING else 0

        if free:
            return self.drivers[max(free, key=lambda number: (gain(number), -load[number]))]
        return self.drivers[min(numbers, key=load.__getitem__)]
