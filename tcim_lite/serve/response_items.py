"""The items of a response's output, and the events by which a stream tells of each."""

from __future__ import annotations

import uuid
from typing import Any, Protocol

_Event = dict[str, Any]


class Item(Protocol):
    """One item while it grows. Where it stands in the output is for the writer to add.

    Attributes:
        id: of the item.
    """

    id: str

    def body(self, status: str) -> dict[str, Any]:
        """The item; one in progress is shown empty."""

    def begin(self) -> list[_Event]:
        """What follows the event that adds the item."""

    def end(self) -> list[_Event]:
        """What stands before the event that the item is done."""


class MessageItem:
    """What the model says."""

    def __init__(self) -> None:
        self.id = f"msg_{uuid.uuid4().hex}"
        self._text = ""
        self._logprobs: list[dict[str, Any]] = []

    def body(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._part()]
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content}

    def begin(self) -> list[_Event]:
        return [{"type": "response.content_part.added", "content_index": 0, "part": self._part()}]

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> list[_Event]:
        """More text, and what is known of its tokens."""
        self._text += text
        self._logprobs += logprobs
        return [{"type": "response.output_text.delta", "content_index": 0, "delta": text, "logprobs": logprobs}]

    def end(self) -> list[_Event]:
        done = {"type": "response.output_text.done", "content_index": 0, "text": self._text, "logprobs": self._logprobs}
        return [done, {"type": "response.content_part.done", "content_index": 0, "part": self._part()}]

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": list(self._logprobs)}


class ReasoningItem:
    """What the model thinks before it says something."""

    def __init__(self) -> None:
        self.id = f"rs_{uuid.uuid4().hex}"
        self._text = ""

    def body(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._part()]
        return {"id": self.id, "type": "reasoning", "status": status, "summary": [], "content": content}

    def begin(self) -> list[_Event]:
        return [{"type": "response.content_part.added", "content_index": 0, "part": self._part()}]

    def add(self, text: str) -> list[_Event]:
        """More of the thought."""
        self._text += text
        return [{"type": "response.reasoning_text.delta", "content_index": 0, "delta": text}]

    def end(self) -> list[_Event]:
        done = {"type": "response.reasoning_text.done", "content_index": 0, "text": self._text}
        return [done, {"type": "response.content_part.done", "content_index": 0, "part": self._part()}]

    def _part(self) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": self._text}


class CallItem:
    """A call of a function."""

    def __init__(self, call_id: str, name: str):
        self.id = f"fc_{uuid.uuid4().hex}"
        self._call_id, self._name, self._arguments = call_id, name, ""

    def body(self, status: str) -> dict[str, Any]:
        made = {"id": self.id, "type": "function_call", "status": status, "call_id": self._call_id, "name": self._name}
        return {**made, "arguments": self._arguments}

    def begin(self) -> list[_Event]:
        return []

    def add(self, arguments: str) -> list[_Event]:
        """More of the arguments."""
        self._arguments += arguments
        return [{"type": "response.function_call_arguments.delta", "delta": arguments}]

    def end(self) -> list[_Event]:
        done = {"type": "response.function_call_arguments.done", "name": self._name, "arguments": self._arguments}
        return [done]
