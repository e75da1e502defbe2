"""Splits a reply of Gemma 4 as it grows: thoughts in a channel, calls in a notation of their own."""

from __future__ import annotations

import json
import re

from .reply_parts import Parts, Splitter, cut_before_tag
from .tool_calls import CallPart, as_json

# A prompt ends with the first, or with the second where there is to be no thought.
_BEGIN_REPLY, _NO_THOUGHT = "<|turn>model\n", "<|turn>model\n<|channel>thought\n<channel|>"
END_REPLY = ("<|tool_response>",)  # what a tool gives is not the model's

_BEGINS, _END_THOUGHT, _END_CALL = ("<|channel>", "<|tool_call>"), "<channel|>", "<tool_call|>"
_TAG = re.compile(r"<\|(?:channel|tool_call)>")
_CALL = re.compile(r"\s*call:([^\s{]+)\s*(\{.*\})\s*", re.DOTALL)
_QUOTE = '<|"|>'
_KEY = re.compile(r"([{,]\s*)([^\s{}\[\],:\"]+)\s*:")


def has_turns(prompt: str) -> bool:
    """Whether the reply to a prompt is of this form."""
    return prompt.endswith((_BEGIN_REPLY, _NO_THOUGHT))


class TurnParts(Splitter):
    """Text with special tokens. A call comes in one piece, when it is complete; one that was cut off is content.

    Args:
        tools: Names that a call may have; other calls are content.
    """

    def __init__(self, tools: frozenset[str] = frozenset()):
        super().__init__()
        self._tools, self._state = tools, "content"

    def rest(self) -> Parts:
        parts, held, self._held = Parts(), self._held, ""
        if self._state == "thought":
            parts.reasoning = held
        elif self._state == "call":
            parts.content = f"<|tool_call>{held}"
        elif self._state == "content":
            parts.content = held
        return parts

    def _step(self, parts: Parts) -> bool:
        return {"content": self._content, "channel": self._channel, "thought": self._thought, "call": self._call}[
            self._state
        ](parts)

    def _content(self, parts: Parts) -> bool:
        tag = _TAG.search(self._held)
        cut = tag.start() if tag is not None else cut_before_tag(self._held, _BEGINS)
        parts.content += self._held[:cut]
        if tag is None:
            self._held = self._held[cut:]
            return False
        self._held, self._state = self._held[tag.end() :], "channel" if tag[0] == "<|channel>" else "call"
        return True

    def _channel(self, parts: Parts) -> bool:
        """Its name is a line."""
        _, found, after = self._held.partition("\n")
        if found:
            self._held, self._state = after, "thought"
        return bool(found)

    def _thought(self, parts: Parts) -> bool:
        before, found = self._until(_END_THOUGHT)
        parts.reasoning += before
        self._state = "content" if found else "thought"
        return found

    def _call(self, parts: Parts) -> bool:
        inside, found, after = self._held.partition(_END_CALL)
        if not found:
            return False
        call = _CALL.fullmatch(inside)
        if call is not None and call[1] in self._tools:
            parts.calls.append(CallPart(call[1], _as_json(call[2])))
        else:
            parts.content += f"<|tool_call>{inside}{found}"
        self._held, self._state = after, "content"
        return True


def _as_json(text: str) -> str:
    """Arguments, whose keys have no quotes and whose texts have `<|"|>` for them; what is no object as it is."""
    made = "".join(
        json.dumps(part, ensure_ascii=False) if index % 2 else _KEY.sub(r'\1"\2":', part)
        for index, part in enumerate(text.split(_QUOTE))
    )
    try:
        return as_json(made)
    except ValueError:
        return text
