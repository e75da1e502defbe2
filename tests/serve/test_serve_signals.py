"""Signals to a server whose loop has much to do."""

import asyncio
import os
import signal
from types import SimpleNamespace

import pytest
import uvicorn

from tcim_lite.serve.run import _Server


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_counts_at_once_however_far_the_loop_is_behind(number):
    closed, seen = [], []
    engines = SimpleNamespace(pending=3, close=lambda timeout: closed.append(timeout))
    service = SimpleNamespace(is_closing=False, engines=engines, options=SimpleNamespace(shutdown_s=60))
    server = _Server(uvicorn.Config(lambda: None), service)

    def step(count: int) -> None:
        if count == 0:
            os.kill(os.getpid(), number)
        seen.append(service.is_closing)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with server.capture_signals():
            for count in range(50):
                loop.call_soon(step, count)
            while not server.should_exit:
                await asyncio.sleep(0)
            assert closed == []
            os.kill(os.getpid(), number)  # the second
            while not closed:
                await asyncio.sleep(0)

    before = signal.getsignal(number)
    asyncio.run(work())
    assert signal.getsignal(number) is before
    assert all(seen[1:])
    assert closed == [0]
