"""What other threads have for the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, proxy

_AT_ONCE = 64  # calls in one turn of the loop: others have theirs between


class Arrivals:
    """Calls functions in the loop, in order, and wakes it once for all that have come since.

    Each wake-up is a byte in a pipe that holds some 280 of them. The loop's signals take the same pipe and are lost
    where it is full, as a wake-up for every token makes it while the loop is behind.
    """

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Arrivals]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = proxy(loop)
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False  # _take is to come

    @classmethod
    def here(cls) -> Arrivals:
        """Those of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in cls._of:
            cls._of[loop] = cls(loop)
        return cls._of[loop]

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """From any thread; where the loop has ended, nothing is called."""
        self._waiting.append((function, arguments))
        if not self._woken:  # two threads may both see this, which wakes the loop twice
            self._woken = True
            with contextlib.suppress(RuntimeError, ReferenceError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            function, arguments = self._waiting.popleft()
            function(*arguments)
        if not self._waiting:
            self._woken = False
        if self._waiting:  # asked again: what came between has woken nobody
            self._woken = True
            self._loop.call_soon(self._take)
