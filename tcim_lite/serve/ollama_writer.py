"""/api/chat and /api/generate: from what the engine makes to Ollama's objects, one or a line for each."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from ..llm.engine import Event
from .answers import utc_now
from .chat import ChatReply
from .errors import ApiError, ollama_body
from .tool_calls import arguments_object
from .usage import UsageCount


class OllamaWriter:
    """Writes one answer; a `Writer`. Calls of tools come in one piece, when they are complete.

    Args:
        reply: Of one choice; None for a completion, whose text is shown as it is.
        is_chat: The text is in a message.
        usage: Counts the tokens.
        model: Name of the model.
        begun: `perf_counter_ns()` when the request came.
    """

    last, ping = b"", b""

    def __init__(self, reply: ChatReply | None, is_chat: bool, usage: UsageCount, model: str, begun: int):
        self._reply, self._is_chat, self._usage, self._model = reply, is_chat, usage, model
        self._begun, self._first = begun, 0
        self._whole: dict[str, Any] = {}  # content, thinking, tool_calls of the answer so far
        self._call: dict[str, Any] | None = None  # one that is not complete
        self._arguments = ""
        self._reason = "stop"

    def begin(self) -> list[dict[str, Any]]:
        return []

    def add(self, index: int, event: Event) -> list[dict[str, Any]]:
        self._usage.add(index, event)
        self._first = self._first or perf_counter_ns()
        if self._reply is None:
            deltas = [{"content": event.text}] if event.text else []
        else:
            deltas = [choice["delta"] for choice in self._reply.add(index, event)]
        made = [shown for delta in deltas if (shown := self._change(delta))]
        if event.finish_reason is not None:
            self._reason = "length" if event.finish_reason == "length" else "stop"
            if calls := self._ended_call():
                made.append(calls)
        for shown in made:
            for name, value in shown.items():
                self._whole[name] = self._whole[name] + value if name in self._whole else value
        return [self._shown(shown) for shown in made]

    def end(self) -> list[dict[str, Any]]:
        return [{**self._shown({}), **self._done()}]

    def fail(self, error: ApiError) -> list[dict[str, Any]]:
        return [ollama_body(error)]

    def body(self) -> dict[str, Any]:
        return {**self._shown(self._whole), **self._done()}

    def _change(self, delta: dict[str, Any]) -> dict[str, Any]:
        """What an event of a chat's stream adds to content, thinking and calls."""
        made: dict[str, Any] = {}
        if text := delta.get("content"):
            made["content"] = text
        if text := delta.get("reasoning_content"):
            made["thinking"] = text
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                made |= self._ended_call()
                self._call, self._arguments = {"name": call["function"]["name"]}, ""
            self._arguments += call["function"]["arguments"]
        return made

    def _ended_call(self) -> dict[str, Any]:
        if self._call is None:
            return {}
        call, self._call = {**self._call, "arguments": arguments_object(self._arguments)}, None
        return {"tool_calls": [{"function": call}]}

    def _shown(self, parts: dict[str, Any]) -> dict[str, Any]:
        head = {"model": self._model, "created_at": utc_now()}
        if self._is_chat:
            return {**head, "message": {"role": "assistant", "content": "", **parts}, "done": False}
        thought = {"thinking": parts["thinking"]} if "thinking" in parts else {}
        return {**head, "response": parts.get("content", ""), **thought, "done": False}

    def _done(self) -> dict[str, Any]:
        """How it ended; durations are in nanoseconds. Waiting for a slot counts as reading the prompt."""
        now, counted = perf_counter_ns(), self._usage.body()
        first = self._first or now
        return {
            "done": True,
            "done_reason": self._reason,
            "total_duration": now - self._begun,
            "load_duration": 0,
            "prompt_eval_count": counted["prompt_tokens"],
            "prompt_eval_duration": first - self._begun,
            "eval_count": counted["completion_tokens"],
            "eval_duration": now - first,
        }
