"""How answers go out: in one piece, or as server-sent events; and what happens when the client is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Protocol

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..llm.engine import Event
from .answers import Answers
from .errors import ApiError
from .options import ServeOptions
from .within import within

_log = logging.getLogger(__name__)
# Ends of lines to Unicode, though not to server-sent events; clients that read text line by line cut there.
_LINE_ENDS = {char.encode(): f"\\u{ord(char):04x}".encode() for char in "\x85\u2028\u2029"}


COMMENT = b": ping\n\n"  # which clients of server-sent events skip


class Writer(Protocol):
    """Writes a response of one of the APIs; ChoicesWriter, ResponseWriter, MessageWriter, TranscriptWriter and others.

    Attributes:
        last: bytes that end a stream.
        ping: bytes that keep it open while there is nothing to say.
    """

    last: bytes
    ping: bytes

    def begin(self) -> list[dict[str, Any]]:
        """The events of a stream before any token."""

    def add(self, index: int, event: Event) -> list[dict[str, Any]]:
        """Takes what the engine made for an answer; the events of a stream that say so."""

    def end(self) -> list[dict[str, Any]]:
        """The events of a stream after the last token."""

    def fail(self, error: ApiError) -> list[dict[str, Any]]:
        """The events of a stream that cannot go on."""

    def body(self) -> dict[str, Any]:
        """The response in one piece."""


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


async def finish(receive: Receive, answers: Answers, writer: Writer) -> None:
    """Has a response written that goes out in one piece.

    Raises:
        ApiError, ClientDisconnect: As `Answers.events`.
    """
    async with watching(receive, answers.abort):
        async for item in answers.events(3600.0):
            if item is not None:
                writer.add(*item)


async def whole(receive: Receive, answers: Answers, writer: Writer) -> Response:
    """The response in one piece.

    Raises:
        ApiError, ClientDisconnect: As `Answers.events`.
    """
    await finish(receive, answers, writer)
    return JsonResponse(writer.body())


class EventStream(Response):
    """A response of server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, answers: Answers, writer: Writer, options: ServeOptions):
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._answers, self._writer, self._options = answers, writer, options

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

    def encode(self, events: list[dict[str, Any]]) -> bytes:
        """Events as they go out."""
        return event_lines(events)

    async def _data(self) -> AsyncGenerator[bytes, None]:
        """The events as bytes."""
        try:
            if begun := self._writer.begin():
                yield self.encode(begun)
            async for item in self._answers.events(self._options.ping_s):
                if item is None:
                    yield self._writer.ping
                    continue
                if made := self._writer.add(*item):
                    yield self.encode(made)
            ended = self._writer.end()
        except ClientDisconnect:
            return
        except ApiError as error:
            ended = self._writer.fail(error)
        yield self.encode(ended) + self._writer.last


class LineStream(EventStream):
    """As `EventStream`, a line of JSON for each event, as Ollama's clients read it."""

    media_type = "application/x-ndjson"

    def encode(self, events: list[dict[str, Any]]) -> bytes:
        return b"".join(_one_line(event) + b"\n" for event in events)


def event_lines(events: list[dict[str, Any]]) -> bytes:
    """Events as they go out; one that has a type is named by it."""
    return b"".join(
        (b"event: " + event["type"].encode() + b"\n" if "type" in event else b"")
        + b"data: "
        + _one_line(event)
        + b"\n\n"
        for event in events
    )


def _one_line(event: dict[str, Any]) -> bytes:
    text = msgspec.json.encode(event)
    for char, escape in _LINE_ENDS.items():
        text = text.replace(char, escape)
    return text
