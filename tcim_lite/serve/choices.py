"""Responses that are made of choices: of /v1/chat/completions and /v1/completions."""

from __future__ import annotations

import uuid
from typing import Any, Protocol

from .. import __version__
from ..llm.engine import Event
from .answers import now
from .errors import ApiError
from .protocol import StreamOptions
from .streams import COMMENT
from .usage import UsageCount


class Reply(Protocol):
    """Makes the choices of a response; ChatReply and CompletionReply."""

    prefix: str
    kind: str
    chunk_kind: str

    def begin(self) -> list[dict[str, Any]]: ...
    def add(self, index: int, event: Event) -> list[dict[str, Any]]: ...
    def choices(self) -> list[dict[str, Any]]: ...


class ChoicesWriter:
    """Writes choices; a `Writer`. An event of a stream has one choice that changes."""

    last, ping = b"data: [DONE]\n\n", COMMENT

    def __init__(self, reply: Reply, usage: UsageCount, model: str, wanted: StreamOptions | None):
        self._reply, self._usage = reply, usage
        self._wanted = wanted or StreamOptions()
        self._head = {
            "id": reply.prefix + uuid.uuid4().hex,
            "object": reply.chunk_kind,
            "created": now(),
            "model": model,
            "system_fingerprint": f"tcim-lite-{__version__}",
        }

    def begin(self) -> list[dict[str, Any]]:
        return [self._event(choice) for choice in self._reply.begin()]

    def add(self, index: int, event: Event) -> list[dict[str, Any]]:
        self._usage.add(index, event)
        return [self._event(choice) for choice in self._reply.add(index, event)]

    def end(self) -> list[dict[str, Any]]:
        return [{**self._head, "choices": [], "usage": self._usage.body()}] if self._wanted.include_usage else []

    def fail(self, error: ApiError) -> list[dict[str, Any]]:
        return [error.body()]

    def body(self) -> dict[str, Any]:
        made = {**self._head, "object": self._reply.kind}
        return {**made, "choices": self._reply.choices(), "usage": self._usage.body()}

    def _event(self, choice: dict[str, Any]) -> dict[str, Any]:
        event = {**self._head, "choices": [choice]}
        if self._wanted.continuous_usage_stats:
            event["usage"] = self._usage.body()
        elif self._wanted.include_usage:
            event["usage"] = None
        return event
