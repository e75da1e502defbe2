"""A thread of its own for an engine, so that a server or a worker can use it from any thread."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .driven import DrivenEngine
from .request import Event, RequestError
from .sampling_params import SamplingParams

_log = logging.getLogger(__name__)


class Driver:
    """Runs an engine in one thread; every method may be called from any thread, and none waits for a step but `close`.

    Callbacks run in a second thread, one after the other, while the graph already works on the next token: in the first
    they would stand between two runs. They must return soon: a server hands the event to its loop
    (`loop.call_soon_threadsafe`). One that raises is logged, and its request is aborted.

    Args:
        engine: Used by nobody else from now on.

    Attributes:
        engine: For reading: `snapshot()`, `stats` and `waiting` may be a step old.
    """

    def __init__(self, engine: DrivenEngine):
        self.engine = engine
        self._lock = threading.Lock()  # over the three below
        self._callbacks: dict[str, Callable[[Event], None]] = {}  # of requests that are not done
        self._inbox: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._closing = False
        self._outbox: queue.SimpleQueue[list[Event] | None] = queue.SimpleQueue()  # None is the last
        engine.slots.before_run(self._hand_out)
        self._ids = itertools.count()
        self._thread = threading.Thread(target=self._run, name="tcim-lite-engine", daemon=True)
        self._messenger = threading.Thread(target=self._deliver_all, name="tcim-lite-events", daemon=True)
        self._messenger.start()
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the engine's thread runs: False after `close`, or after an error that is no request's."""
        return self._thread.is_alive()

    @property
    def pending(self) -> int:
        """Requests that are not done, waiting ones included."""
        return len(self._callbacks)

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None,
        on_event: Callable[[Event], None],
        *,
        request_id: str | None = None,
    ) -> str:
        """Queues a request and returns its id; `on_event` gets its events, the one with a finish reason last.

        Raises:
            RequestError, QueueFullError: As `Engine.add`.
            RuntimeError: The driver is closed, or its thread has ended by an error.
        """
        request = self.engine.prepare(prompt, params, request_id or "")
        with self._lock:
            if self._closing or not self.is_alive:
                raise RuntimeError("the engine is closed; it takes no requests")
            if request_id is None:
                request_id = next(name for n in self._ids if (name := f"request-{n}") not in self._callbacks)
            elif request_id in self._callbacks:
                raise RequestError(f"request id {request_id!r:.80} is in use")
            request.id = request_id
            self.engine.check_room(len(self._callbacks))
            self._callbacks[request_id] = on_event
            self._inbox.put(lambda: self.engine.enqueue(request))
        return request_id

    def abort(self, request_id: str) -> None:
        """Ends a request within a step; its last event follows. Does nothing where it is done."""
        self._inbox.put(lambda: self.engine.abort(request_id))

    def close(self, *, finish: bool = False, timeout: float | None = None) -> bool:
        """Takes nothing new, aborts what is left, or with `finish` answers it first, and ends the threads.

        Returns:
            Whether they have ended within `timeout` seconds; `close()` again aborts what a longer one finishes.
        """
        with self._lock:
            self._closing = True
            self._inbox.put((lambda: None) if finish else self._abort_all)
        begun = time.monotonic()
        for thread in self._others():
            thread.join(None if timeout is None else max(0.0, timeout - (time.monotonic() - begun)))
        return not any(thread.is_alive() for thread in self._others())

    def _others(self) -> list[threading.Thread]:
        """The threads, but the one that asks."""
        return [thread for thread in (self._thread, self._messenger) if thread is not threading.current_thread()]

    def _abort_all(self) -> None:
        for request_id in list(self.engine.requests):
            self.engine.abort(request_id)

    def _run(self) -> None:
        try:
            while self._drain():
                self.engine.advance()
                if not self.engine.requests:  # no run is to come
                    self._hand_out()
        finally:
            self._hand_out()
            with self._lock:
                self._closing = True
            self._outbox.put(None)

    def _hand_out(self) -> None:
        """Gives what has come since to the second thread."""
        if events := self.engine.take_events():
            self._outbox.put(events)

    def _deliver_all(self) -> None:
        while (events := self._outbox.get()) is not None:
            for event in events:
                self._deliver(event)
        with self._lock:  # after an error of the first thread nobody may wait for ever
            left, self._callbacks = self._callbacks, {}
        for request_id, on_event in left.items():
            _call(on_event, Event(request_id=request_id, finish_reason="error", error="the engine has ended"))

    def _drain(self) -> bool:
        """Does what others asked for; waits while there is nothing to do. False: the end."""
        while True:
            try:
                self._inbox.get(block=not self.engine.has_work and not self._closing)()
            except queue.Empty:
                with self._lock:
                    return self.engine.has_work or not self._closing or not self._inbox.empty()

    def _deliver(self, event: Event) -> None:
        on_event = self._callbacks[event.request_id]
        if event.finish_reason is not None:
            with self._lock:
                del self._callbacks[event.request_id]
        if not _call(on_event, event):
            self.abort(event.request_id)


def _call(on_event: Callable[[Event], None], event: Event) -> bool:
    try:
        on_event(event)
    except Exception:
        _log.exception("the callback of %s failed", event.request_id)
        return False
    return True
