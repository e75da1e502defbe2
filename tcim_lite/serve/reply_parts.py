"""Splits a reply as it grows: what the model thought, what it says, the tools it calls."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

_THINK, _END_THINK = "<think>", "</think>"
_CALL, _END_CALL = "<tool_call>", "</tool_call>"  # as Qwen3 writes them: a JSON object between the two


@dataclass
class Parts:
    """What a piece of text added, or a whole reply.

    Attributes:
        reasoning: between `<think>` and `</think>`.
        content: what is said.
        calls: name and arguments (JSON text) of each call.
    """

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


class ReplyParts:
    """Text in, parts out. A tag is recognised wherever its letters lie among pieces.

    Args:
        tools: Names that a call may have; an empty set leaves calls in the content.
        is_thinking: The prompt ends with `<think>`: the reply begins with reasoning.
    """

    def __init__(self, tools: frozenset[str] = frozenset(), *, is_thinking: bool = False):
        self._tools, self._held = tools, ""
        self._state = "thought" if is_thinking else "begin"

    def add(self, text: str) -> Parts:
        """What `text` completes; what may be the beginning of a tag is held back."""
        self._held += text
        parts = Parts()
        while self._step(parts):
            pass
        return parts

    def rest(self) -> Parts:
        """What was held back; the reply has ended."""
        parts, held, self._held = Parts(), self._held, ""
        if self._state == "thinking":
            parts.reasoning = held
        elif self._state == "call":  # never closed: no call
            parts.content = _CALL + held
        else:
            parts.content = held
        return parts

    def _step(self, parts: Parts) -> bool:
        """Goes on by a state; False when more text is needed."""
        return {
            "begin": self._begin,
            "thought": lambda _: self._skip_lines("thinking"),  # what follows <think>
            "thinking": self._thinking,
            "gap": lambda _: self._skip_lines("saying"),  # between a thought or a call and what follows
            "saying": self._saying,
            "call": self._call,
        }[self._state](parts)

    def _begin(self, parts: Parts) -> bool:
        start = self._held.lstrip()
        if _THINK.startswith(start[: len(_THINK)]) and len(start) < len(_THINK):
            return False
        if start.startswith(_THINK):
            self._held, self._state = start[len(_THINK) :], "thought"
        else:
            self._state = "saying"
        return True

    def _thinking(self, parts: Parts) -> bool:
        before, found = self._until(_END_THINK)
        parts.reasoning += before
        self._state = "gap" if found else "thinking"
        return found

    def _skip_lines(self, state: str) -> bool:
        self._held = self._held.lstrip("\n")
        if self._held:
            self._state = state
        return bool(self._held)

    def _saying(self, parts: Parts) -> bool:
        if not self._tools:
            parts.content += self._held
            self._held = ""
            return False
        before, found = self._until(_CALL)
        parts.content += before
        self._state = "call" if found else "saying"
        return found

    def _call(self, parts: Parts) -> bool:
        inside, end, after = self._held.partition(_END_CALL)
        if not end:
            return False
        call = _read_call(inside, self._tools)
        if call is None:
            parts.content += _CALL + inside + end
        else:
            parts.calls.append(call)
        self._held, self._state = after, "gap"
        return True

    def _until(self, tag: str) -> tuple[str, bool]:
        """Takes what is before `tag`, and the tag; without it, all that cannot be its beginning."""
        before, found, after = self._held.partition(tag)
        if found:
            self._held = after
            return before, True
        kept = next((n for n in range(min(len(before), len(tag) - 1), 0, -1) if before.endswith(tag[:n])), 0)
        self._held = before[len(before) - kept :]
        return before[: len(before) - kept], False


def _read_call(text: str, tools: frozenset[str]) -> tuple[str, str] | None:
    """Name and arguments of a call; None for what is none, or calls what is not there."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str) or found["name"] not in tools:
        return None
    arguments = found.get("arguments", {})
    return found["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


class ForcedCall:
    """The parts of a reply that a grammar makes a call.

    Args:
        name: Of the function whose arguments the whole reply is; None where it is an object with name and arguments.
        tools: Names that a call may have.
    """

    def __init__(self, name: str | None, tools: frozenset[str]):
        self._name, self._tools, self._text = name, tools, ""

    def add(self, text: str) -> Parts:
        """Nothing yet."""
        self._text += text
        return Parts()

    def rest(self) -> Parts:
        """The call; a reply that was cut off is content, or the beginning of the named function's arguments."""
        call = (self._name, self._text) if self._name is not None else _read_call(self._text, self._tools)
        return Parts(content=self._text) if call is None else Parts(calls=[call])


def call_object(call: tuple[str, str], index: int | None = None) -> dict[str, Any]:
    """A call as OpenAI's clients expect it; with its index in a stream."""
    name, arguments = call
    made = {
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return made if index is None else {"index": index, **made}
