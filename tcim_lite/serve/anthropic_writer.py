"""/v1/messages: from the choice of a chat to the blocks of a message, and the events of its stream."""

from __future__ import annotations

import uuid
from typing import Any

from ..llm.engine import Event
from .chat import ChatReply
from .errors import ApiError, anthropic_body
from .tool_calls import arguments_object
from .usage import UsageCount

_Event = dict[str, Any]


class MessageWriter:
    """Writes one message; a `Writer`.

    Args:
        reply: Of one choice.
        most: Tokens that the answer may have; one that ends earlier for its length has filled the context.
        usage: Counts the tokens.
        model: Name of the model.
    """

    last = b""
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, reply: ChatReply, most: int, usage: UsageCount, model: str):
        self._reply, self._most, self._usage = reply, most, usage
        self._head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": model}
        self._blocks: list[dict[str, Any]] = []  # the last is open until the next begins
        self._is_open = False
        self._arguments = ""  # of a call that is open, as JSON
        self._reason: str | None = None
        self._stop: str | None = None

    def begin(self) -> list[_Event]:
        counted = self._usage.body()
        empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": _counts(counted)}
        return [{"type": "message_start", "message": {**self._head, **empty}}, {"type": "ping"}]

    def add(self, index: int, event: Event) -> list[_Event]:
        self._usage.add(index, event)
        made: list[_Event] = []
        for choice in self._reply.add(index, event):
            made += self._change(choice["delta"])
        if event.finish_reason is not None:
            made += self._close()
            self._end(event)
        return made

    def end(self) -> list[_Event]:
        delta = {"stop_reason": self._reason, "stop_sequence": self._stop}
        return [
            {"type": "message_delta", "delta": delta, "usage": _counts(self._usage.body())},
            {"type": "message_stop"},
        ]

    def fail(self, error: ApiError) -> list[_Event]:
        return [anthropic_body(error)]

    def body(self) -> dict[str, Any]:
        done = {"content": self._blocks, "stop_reason": self._reason, "stop_sequence": self._stop}
        return {**self._head, **done, "usage": _counts(self._usage.body())}

    def _end(self, event: Event) -> None:
        called = any(block["type"] == "tool_use" for block in self._blocks)
        if event.finish_reason == "length":
            written = event.usage.completion_tokens if event.usage else 0
            self._reason = "max_tokens" if written >= self._most else "model_context_window_exceeded"
        elif isinstance(event.stop_reason, str):
            self._reason, self._stop = "stop_sequence", event.stop_reason
        else:
            self._reason = "tool_use" if called else "end_turn"

    def _change(self, delta: dict[str, Any]) -> list[_Event]:
        """The events for what an event of a chat's stream says."""
        made: list[_Event] = []
        if text := delta.get("reasoning_content"):
            made += self._begin({"type": "thinking", "thinking": "", "signature": ""})
            made += self._grow("thinking", text, {"type": "thinking_delta", "thinking": text})
        if text := delta.get("content"):
            made += self._begin({"type": "text", "text": ""})
            made += self._grow("text", text, {"type": "text_delta", "text": text})
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                name, number = call["function"]["name"], call["id"].removeprefix("call_")
                made += self._begin({"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}})
            if text := call["function"]["arguments"]:
                self._arguments += text
                change = {"type": "input_json_delta", "partial_json": text}
                made.append({"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": change})
        return made

    def _begin(self, block: dict[str, Any]) -> list[_Event]:
        """Opens a block, unless one of that kind is open; each call has its own."""
        if self._is_open and self._blocks[-1]["type"] == block["type"] != "tool_use":
            return []
        made = self._close()
        self._is_open, self._arguments = True, ""
        self._blocks.append(block)
        return [*made, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": dict(block)}]

    def _grow(self, key: str, text: str, change: dict[str, Any]) -> list[_Event]:
        self._blocks[-1][key] += text
        return [{"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": change}]

    def _close(self) -> list[_Event]:
        if not self._is_open:
            return []
        self._is_open = False
        block, index = self._blocks[-1], len(self._blocks) - 1
        if block["type"] == "tool_use":
            block["input"] = arguments_object(self._arguments)
        made: list[_Event] = []
        if block["type"] == "thinking":  # clients of Anthropic's expect one, and send it back
            change = {"type": "signature_delta", "signature": ""}
            made.append({"type": "content_block_delta", "index": index, "delta": change})
        return [*made, {"type": "content_block_stop", "index": index}]


def _counts(counted: dict[str, Any]) -> dict[str, Any]:
    """Anthropic's usage, in which cached tokens are counted apart from the others."""
    cached = counted["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": counted["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": counted["completion_tokens"],
    }
