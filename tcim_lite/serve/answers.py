"""The engine's answers to one HTTP request, as an asyncio stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime, timezone

from starlette.requests import ClientDisconnect

from ..llm.engine import Event, QueueFullError, Replicas, RequestError, SamplingParams
from .arrivals import Arrivals
from .errors import ApiError, closing, overloaded, too_slow
from .metrics import Metrics
from .sampling import seeded
from .within import within


class Answers:
    """Submits prompts and hands their events to the loop. One task reads; `abort` may come from any task.

    A reader that is slow stalls nobody: events wait in the loop's queue, which holds at most the tokens of the context.

    Args:
        engines: Answer.
        metrics: Told of every event.
        timeout_s: From now on; then the answers end with an error.
    """

    def __init__(self, engines: Replicas, metrics: Metrics, timeout_s: float):
        self._engines, self._metrics, self._timeout_s = engines, metrics, timeout_s
        self._loop, self._arrivals = asyncio.get_running_loop(), Arrivals.here()
        self._deadline = self._loop.time() + timeout_s
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._open: dict[int, str] = {}  # request ids of answers that have not ended, by index
        self._aborted = False

    async def submit(
        self, executor: Executor, prompts: Sequence[Sequence[int]], params: SamplingParams, n: int
    ) -> None:
        """Queues n answers of every prompt; their index is prompt * n + choice.

        Raises:
            ApiError: 400 for what can never be answered, 429 for a full queue, 503 at shutdown. Nothing is queued then.
        """
        for index in range(len(prompts) * n):
            prompt, own = prompts[index // n], replace(params, **seeded(params, index % n))
            try:
                await self._loop.run_in_executor(executor, self.submit_one, index, prompt, own)
            except BaseException as error:
                self.abort()
                raise refusal(error) from error
        if self._aborted:
            self.abort()

    def submit_one(self, index: int, prompt: Sequence[int], params: SamplingParams) -> None:
        """Queues one, whose events have this index; raises what the engine raises."""
        watch = self._metrics.watch(len(prompt))

        def on_event(event: Event) -> None:  # in the driver's second thread
            watch(event)
            self._arrivals.call(self._events.put_nowait, (index, event))

        self._open[index] = self._engines.submit(prompt, params, on_event)

    def abort(self) -> None:
        """Frees the slots within a step; the client is gone."""
        self._aborted = True
        for request_id in list(self._open.values()):
            self._engines.abort(request_id)

    @property
    def has_more(self) -> bool:
        """Whether the next of `events` is at hand."""
        return not self._events.empty()

    async def events(self, idle_s: float) -> AsyncGenerator[tuple[int, Event] | None, None]:
        """(index, event) until all answers have ended; None where nothing came for `idle_s` seconds.

        Raises:
            ApiError: 400 where bias and grammar forbid all tokens or the grammar is too large, 500 where the runtime
                failed, 503 at shutdown, 504 at the limit of time. All are aborted then.
            ClientDisconnect: After `abort`.
        """
        try:
            while self._open:
                left = self._deadline - self._loop.time()
                if left <= 0:
                    raise too_slow(self._timeout_s)
                try:
                    index, event = await within(min(idle_s, left), self._events.get())
                except asyncio.TimeoutError:
                    yield None
                    continue
                if event.finish_reason is not None:
                    del self._open[index]
                if event.is_own_fault:
                    raise ApiError(400, f"the answer cannot go on: {event.error}", code="invalid_value")
                if event.finish_reason == "error":
                    raise ApiError(500, f"the answer failed: {event.error}", code="engine_error")
                if event.finish_reason == "abort":
                    raise ClientDisconnect if self._aborted else closing()
                yield index, event
        finally:
            self.abort()


def refusal(error: BaseException) -> BaseException:
    """The answer to a client whose prompt the engine does not take."""
    if isinstance(error, RequestError):
        code = "context_length_exceeded" if "the context holds" in str(error) else "invalid_value"
        return ApiError(400, str(error), code=code)
    if isinstance(error, QueueFullError):
        return overloaded(str(error))
    if isinstance(error, RuntimeError) and "closed" in str(error):
        return closing()
    return error


def utc_now() -> str:
    """The time as Ollama's and Anthropic's clients read it, such as "2026-01-31T12:00:00.000000Z"."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def now() -> int:
    """Seconds since 1970, for `created`."""
    return int(time.time())
