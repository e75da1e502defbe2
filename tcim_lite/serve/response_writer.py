"""/v1/responses: from the choice of a chat to the items of a response, and the events of its stream."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from ..llm.engine import Event, SamplingParams
from .answers import now
from .chat import ChatReply
from .errors import ApiError
from .response_items import CallItem, Item, MessageItem, ReasoningItem
from .responses_protocol import ResponsesRequest
from .streams import COMMENT
from .usage import UsageCount


class ResponseWriter:
    """Writes one response; a `Writer`.

    Args:
        reply: Of one choice.
    """

    last, ping = b"", COMMENT

    def __init__(
        self, request: ResponsesRequest, reply: ChatReply, params: SamplingParams, usage: UsageCount, model: str
    ):
        self._reply, self._usage = reply, usage
        self._head = _head(request, params, model)
        self._number = 0  # of the next event
        self._done: list[dict[str, Any]] = []  # the items that have ended
        self._open: Item | None = None
        self._status = "in_progress"
        self._logprobs: list[dict[str, Any]] = []  # of tokens whose text is held back
        self._tokens = self._thought_tokens = 0
        self._has_thought = self._answers = False

    def begin(self) -> list[dict[str, Any]]:
        response = self._response()
        return self._numbered(
            {"type": "response.created", "response": response}, {"type": "response.in_progress", "response": response}
        )

    def add(self, index: int, event: Event) -> list[dict[str, Any]]:
        self._usage.add(index, event)
        made: list[dict[str, Any]] = []
        for choice in _in_order(self._reply.add(index, event)):
            made += self._change(choice)
        self._tokens += len(event.token_ids)
        return self._numbered(*made)

    def end(self) -> list[dict[str, Any]]:
        return self._numbered({"type": f"response.{self._status}", "response": self.body()})

    def fail(self, error: ApiError) -> list[dict[str, Any]]:
        made = self._close("incomplete")
        self._status = "failed"
        code = "invalid_prompt" if error.status == 400 else "server_error"  # the API's list has no nearer ones
        failed = {**self.body(), "error": {"code": code, "message": error.message}}
        return self._numbered(
            *made,
            {"type": "error", "code": error.code, "message": error.message, "param": error.param},
            {"type": "response.failed", "response": failed},
        )

    def body(self) -> dict[str, Any]:
        counted = self._usage.body()
        thought = self._thought_tokens if self._answers else counted["completion_tokens"] * self._has_thought
        usage = {
            "input_tokens": counted["prompt_tokens"],
            "input_tokens_details": {**counted["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": counted["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": counted["total_tokens"],
        }
        return {**self._response(), "usage": usage}

    def _response(self) -> dict[str, Any]:
        cut = {"reason": "max_output_tokens"} if self._status == "incomplete" else None
        return {
            **self._head,
            "status": self._status,
            "completed_at": now() if self._status == "completed" else None,
            "incomplete_details": cut,
            "output": list(self._done),
            "usage": None,
        }

    def _change(self, choice: dict[str, Any]) -> list[dict[str, Any]]:
        """The events for what an event of a chat's stream says."""
        made: list[dict[str, Any]] = []
        delta = choice["delta"]
        if choice["logprobs"]:
            self._logprobs += choice["logprobs"]["content"]
        if text := delta.get("reasoning_content"):
            self._has_thought, self._logprobs = True, []
            if not isinstance(self._open, ReasoningItem):
                made += self._begin(ReasoningItem())
            assert isinstance(self._open, ReasoningItem)
            made += self._grown(self._open.add(text))
        if text := delta.get("content"):
            made += self._say(text)
        for call in delta.get("tool_calls", ()):
            self._answer()
            self._logprobs = []
            if "id" in call:
                made += self._begin(CallItem(call["id"], call["function"]["name"]))
            assert isinstance(self._open, CallItem)
            if call["function"]["arguments"]:
                made += self._grown(self._open.add(call["function"]["arguments"]))
        if reason := choice["finish_reason"]:
            made += self._finish("incomplete" if reason == "length" else "completed")
        return made

    def _say(self, text: str) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        self._answer()
        if not isinstance(self._open, MessageItem):
            if self._open is not None:  # the tag that ended it is no part of the text
                self._logprobs = _of_text(self._logprobs, text)
            made += self._begin(MessageItem())
        assert isinstance(self._open, MessageItem)
        made += self._grown(self._open.add(text, self._logprobs))
        self._logprobs = []
        return made

    def _answer(self) -> None:
        """The thought, if there was one, has ended before this event."""
        if not self._answers:
            self._answers, self._thought_tokens = True, self._tokens * self._has_thought

    def _finish(self, status: str) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        if self._open is None:  # clients expect an item
            made += self._begin(MessageItem())
        if isinstance(self._open, MessageItem) and self._logprobs:  # of tokens without text
            made += self._grown(self._open.add("", self._logprobs))
        made += self._close(status)
        self._status = status
        return made

    def _begin(self, item: Item) -> list[dict[str, Any]]:
        made = self._close("completed")
        self._open = item
        return [*made, self._placed("response.output_item.added", "in_progress"), *self._grown(item.begin())]

    def _close(self, status: str) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        made = [*self._grown(self._open.end()), self._placed("response.output_item.done", status)]
        self._done.append(self._open.body(status))
        self._open = None
        return made

    def _placed(self, kind: str, status: str) -> dict[str, Any]:
        assert self._open is not None
        return {"type": kind, "output_index": len(self._done), "item": self._open.body(status)}

    def _grown(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert self._open is not None
        return [{**event, "item_id": self._open.id, "output_index": len(self._done)} for event in events]

    def _numbered(self, *events: dict[str, Any]) -> list[dict[str, Any]]:
        first, self._number = self._number, self._number + len(events)
        return [{**event, "sequence_number": first + i} for i, event in enumerate(events)]


def _in_order(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What ends a call of an earlier event before the text that follows it; a chat has texts first."""
    first = next((choice for choice in choices if "tool_calls" in choice["delta"]), None)
    if first is None or "id" in first["delta"]["tool_calls"][0]:
        return choices
    return [first, *(choice for choice in choices if choice is not first)]


def _of_text(logprobs: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The last entries, as many as it takes to write `text`."""
    size, first = len(text.encode()), len(logprobs)
    while first and size > 0:
        first -= 1
        size -= len(logprobs[first]["bytes"])
    return logprobs[first:]


def _head(request: ResponsesRequest, params: SamplingParams, model: str) -> dict[str, Any]:
    """What a response says of the request."""
    text = msgspec.to_builtins(request.text) if request.text else {}
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": now(),
        "background": False,
        "error": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata or {},
        "model": model,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": msgspec.to_builtins(request.reasoning),
        "store": False,
        "temperature": params.temperature,
        "text": {"format": {"type": "text"}, **text},
        "tool_choice": msgspec.to_builtins(request.tool_choice) or "auto",
        "tools": msgspec.to_builtins(request.tools or []),
        "top_logprobs": request.top_logprobs or 0,
        "top_p": params.top_p if request.top_p is None else request.top_p,
        "truncation": request.truncation or "disabled",
        "user": request.user,
    }
