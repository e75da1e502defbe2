"""Reads a tool call while it is written, so that a stream can pass its arguments on."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

# Between these a JSON object, as Qwen3 writes it, or tags, as Qwen3.5 does.
BEGIN_CALL, END_CALL = "<tool_call>", "</tool_call>"

# What Qwen3 writes before the arguments. They have to be an object: only of one is the end known without the tag.
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)')

# What Llama, Mistral and others write, one object or several in a list, behind a special token or none. Granite writes
# a list behind a tag that does not end.
_LIST_TAG = r"\s*(?:(?:<\|tool_call\|>|<tool_call>)\s*(?=\[))?"
_BARE = re.compile(_LIST_TAG + r'\[?\s*\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_BARE_NAME = re.compile(_LIST_TAG + r'\[?\s*\{\s*"name"\s*:\s*"([^"]*)("?)')
_BARE_BEGINS = ('{"name":"', '[{"name":"', '<|tool_call|>[{"name":"', '<tool_call>[{"name":"')
_BARE_CHARS = 64  # of it, without the name


@dataclass
class CallPart:
    """A call, or more of one.

    Attributes:
        name: of the function; None for more of the arguments of the last call.
        arguments: JSON text.
    """

    name: str | None
    arguments: str = ""


def call_head(text: str, tools: frozenset[str]) -> tuple[str, str] | None:
    """Name of the tool that is called, and the text from its arguments on; None while `text` does not say so."""
    head = _HEAD.match(text)
    if head is None:
        return None
    try:
        name = json.loads(head[1])
    except ValueError:
        return None
    return (name, text[head.end() :]) if name in tools else None


def bare_head(text: str, tools: frozenset[str]) -> tuple[str, str] | None:
    """As `call_head`, of a reply that is calls and nothing else."""
    head = _BARE.match(text)
    # A longer one is content as soon as that many letters are there, so it is where they come at once too.
    if head is None or head[1] not in tools or head.end() >= _BARE_CHARS + len(head[1]):
        return None
    return head[1], text[head.end() :]


def may_be_bare(text: str, tools: frozenset[str]) -> bool:
    """Whether more text may make a call of it that `bare_head` reads."""
    head = _BARE_NAME.match(text)
    if head is None:
        compact = "".join(text.split())
        return any(begin.startswith(compact) for begin in _BARE_BEGINS)
    fits = head[1] in tools if head[2] else any(tool.startswith(head[1]) for tool in tools)
    return fits and len(text) < _BARE_CHARS + len(head[1])


def whole_call(text: str, tools: frozenset[str]) -> CallPart | None:
    """The call that `text` is, in any order of its fields; None for what is none, or calls what is not there."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str) or found["name"] not in tools:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    try:
        if not isinstance(arguments, str):
            return CallPart(found["name"], _written(arguments))
        arguments.encode()  # it may have half of a surrogate pair, which cannot be sent
    except (ValueError, RecursionError):
        return None
    return CallPart(found["name"], arguments)


def as_json(text: str) -> str:
    """JSON in our way of writing it.

    Raises:
        ValueError: It is none, or is nested too deeply, or has a number that JSON cannot have.
    """
    try:
        return _written(json.loads(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _written(value: Any) -> str:
    """As JSON that can be sent: half of a surrogate pair, which the model wrote as an escape, stays one."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


class ArgumentsText:
    """Finds the end of a JSON object in text that comes in pieces.

    A model may write what is no JSON. So `</tool_call>` ends the object too, unless it is inside a string; and inside
    one that has a line break, which JSON does not allow: its closing quote is missing.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._is_escaped = self._is_broken = False

    def take(self, text: str) -> tuple[str, str, bool]:
        """What of `text` belongs to the object, what is left, and whether the object has ended.

        Without an end, what is left may be the beginning of the tag; it has to be given again, with more text.
        """
        for at, letter in enumerate(text):
            if letter == "<" and (self._is_broken or not self._in_string):
                if text.startswith(END_CALL, at):
                    return text[:at], text[at:], True
                if END_CALL.startswith(text[at:]):
                    return text[:at], text[at:], False
            if self._in_string:
                self._is_broken |= letter == "\n"
                if self._is_escaped:
                    self._is_escaped = False
                elif letter == "\\":
                    self._is_escaped = True
                elif letter == '"':
                    self._in_string = False
            elif letter == '"':
                self._in_string = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return text[: at + 1], text[at + 1 :], True
        return text, "", False


def arguments_object(text: str) -> dict[str, Any]:
    """The arguments of a call as an object; where they are none, as Anthropic's documentation has it."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"INVALID_JSON": text}


def call_object(call: CallPart) -> dict[str, Any]:
    """A whole call as OpenAI's clients expect it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def call_delta(call: CallPart, index: int) -> dict[str, Any]:
    """A part of the call with that index as a stream has it: the first has id and name, the others add arguments."""
    if call.name is None:
        return {"index": index, "function": {"arguments": call.arguments}}
    return {"index": index, **call_object(call)}
