"""How answers go out: in one piece, or as server-sent events; and what happens when the client is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Protocol

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .. import __version__
from ..llm.engine import Event
from .answers import Answers, now
from .errors import ApiError
from .options import ServeOptions
from .protocol import StreamOptions
from .usage import UsageCount
from .within import within

_log = logging.getLogger(__name__)


class Reply(Protocol):
    """Makes the choices of a response; ChatReply and CompletionReply."""

    prefix: str
    kind: str
    chunk_kind: str

    def begin(self) -> list[dict[str, Any]]: ...
    def add(self, index: int, event: Event) -> list[dict[str, Any]]: ...
    def choices(self) -> list[dict[str, Any]]: ...


class JsonResponse(Response):
    """JSON by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


@contextlib.asynccontextmanager
async def watching(receive: Receive, gone: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `gone` as soon as the client has closed the connection."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        _log.info("a client has left; its answers are ended")
        gone()

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()


async def whole(receive: Receive, answers: Answers, reply: Reply, usage: UsageCount, model: str) -> Response:
    """The response in one piece.

    Raises:
        ApiError, ClientDisconnect: As `Answers.events`.
    """
    async with watching(receive, answers.abort):
        async for item in answers.events(3600.0):
            if item is not None:
                usage.add(*item)
                reply.add(*item)
    return JsonResponse({**_head(reply, model, reply.kind), "choices": reply.choices(), "usage": usage.body()})


class EventStream(Response):
    """A response of server-sent events, one for each choice that changes, `[DONE]` at the end."""

    media_type = "text/event-stream"

    def __init__(
        self,
        answers: Answers,
        reply: Reply,
        usage: UsageCount,
        options: ServeOptions,
        wanted: StreamOptions | None,
    ):
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._answers, self._reply, self._usage, self._options = answers, reply, usage, options
        self._wanted = wanted or StreamOptions()
        self._frame = _head(reply, options.model, reply.chunk_kind)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with watching(receive, self._answers.abort):
            async with contextlib.aclosing(self._data()) as pieces:
                async for data in pieces:
                    message = {"type": "http.response.body", "body": data, "more_body": True}
                    try:
                        await within(self._options.stall_s, send(message))
                    except asyncio.TimeoutError:
                        _log.info("a client took nothing for %g s; its answer is ended", self._options.stall_s)
                        self._answers.abort()
                        return
                    # Nothing waits then, and a closed connection is noticed when the loop takes a turn. asyncio logs
                    # each write between.
                    if self._answers.has_more:
                        await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _data(self) -> AsyncGenerator[bytes, None]:
        """The events as bytes."""
        try:
            for choice in self._reply.begin():
                yield self._event(choice)
            async for item in self._answers.events(self._options.ping_s):
                if item is None:
                    yield b": ping\n\n"
                    continue
                self._usage.add(*item)
                made = [self._event(choice) for choice in self._reply.add(*item)]
                if made:
                    yield b"".join(made)
            if self._wanted.include_usage:
                yield _line({**self._frame, "choices": [], "usage": self._usage.body()})
        except ClientDisconnect:
            return
        except ApiError as error:
            yield _line(error.body())
        yield b"data: [DONE]\n\n"

    def _event(self, choice: dict[str, Any]) -> bytes:
        body = {**self._frame, "choices": [choice]}
        if self._wanted.continuous_usage_stats:
            body["usage"] = self._usage.body()
        elif self._wanted.include_usage:
            body["usage"] = None
        return _line(body)


def _line(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _head(reply: Reply, model: str, kind: str) -> dict[str, Any]:
    return {
        "id": reply.prefix + uuid.uuid4().hex,
        "object": kind,
        "created": now(),
        "model": model,
        "system_fingerprint": f"tcim-lite-{__version__}",
    }
