"""Listening, signals, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from .app import make_app
from .service import Service

_log = logging.getLogger(__name__)
_TURN_S = 0.1  # turns of the loop


class _Server(uvicorn.Server):
    """uvicorn, but a signal lets running answers end within a limit, and the exit status is 0 then."""

    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self._service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def end(number: int, frame: FrameType | None) -> None:
            """Refuses what is new at once; the loop's own handlers wait for two turns, seconds with many clients."""
            is_second, self._service.is_closing = self._service.is_closing, True
            loop.call_soon_threadsafe(self._abort if is_second else self._stop)

        # SIGHUP comes when a terminal is closed; nohup has it ignored.
        ends = [signal.SIGTERM, signal.SIGINT]
        ends += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []
        signal.set_wakeup_fd(-1)  # tcim_lite.console would end the process soon after Ctrl-C
        before = {number: signal.signal(number, end) for number in ends}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers who has connected already, which uvicorn alone would leave with a reset connection."""
        for listener in sockets or ():
            listener.listen(0)  # no more of them; who comes now tries again and is refused
        await asyncio.sleep(_TURN_S)  # those that wait are accepted
        for server in self.servers:
            server.close()
        await asyncio.sleep(_TURN_S)  # what they ask is read
        await super().shutdown(sockets)

    def _stop(self) -> None:
        pending = self._service.engines.pending
        _log.info("shutting down; %d requests have %g s to end", pending, self._service.options.shutdown_s)
        self.should_exit = True
        asyncio.get_running_loop().call_later(self._service.options.shutdown_s, self._abort)

    def _abort(self) -> None:
        """Every answer that is left ends with an error that its client can read."""
        self._service.engines.close(timeout=0)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one.

    Raises:
        OSError: The address is in use, or not one of this machine.
        ValueError: There is no such port, or no host is named.
    """
    if not host:  # which the system takes for every address
        raise ValueError("the host is empty; name an address of this machine such as 127.0.0.1, or 0.0.0.0 for all")
    if not 0 <= port < 1 << 16:
        raise ValueError(f"port {port}: expected 0 to {(1 << 16) - 1}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2048)
    # Inherited by every connection. asyncio sets it only where the socket names its protocol, which this one does not;
    # without it a body waits for the client to acknowledge the head, about 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def take_all_files() -> None:
    """Makes the hard limit of open files the process's own, if the system lets it.

    Each client takes one, and 1024 is a common soft limit. Where none is left, asyncio logs thousands of errors a
    second.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # a hard limit above fs.nr_open, which was lowered since
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(service: Service, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP.

    Args:
        service: Is closed at the end.
        listener: From `listen`.
        on_ready: Called once requests are taken; where it raises, the server ends.
    """
    config = uvicorn.Config(
        make_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 << 10,
        timeout_graceful_shutdown=int(service.options.shutdown_s) + 5,
    )
    server = _Server(config, service)
    take_all_files()

    async def serve() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        try:
            if server.started:
                on_ready()
        except BaseException:
            server.should_exit = True
            raise
        finally:
            await serving

    try:
        asyncio.run(serve())
    finally:
        service.close()
        listener.close()
