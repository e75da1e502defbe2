"""Splits a reply as it grows: what the model thought, what it says, the tools it calls."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .parameter_tags import ParameterTags, tagged_head
from .tool_calls import BEGIN_CALL, END_CALL, ArgumentsText, CallPart, bare_head, call_head, may_be_bare, whole_call

_THINK, _END_THINK = "<think>", "</think>"


@dataclass
class Parts:
    """What a piece of text added, or a whole reply.

    Attributes:
        reasoning: between `<think>` and `</think>`.
        content: what is said.
        calls: what is new of calls; the first may go on with the last call of an earlier piece.
    """

    reasoning: str = ""
    content: str = ""
    calls: list[CallPart] = field(default_factory=list)

    def add_arguments(self, text: str) -> None:
        """More of the last call's arguments."""
        if not self.calls:
            self.calls.append(CallPart(None))
        self.calls[-1].arguments += text


def cut_before_tag(text: str, tags: tuple[str, ...]) -> int:
    """Where that of a text begins which may be the beginning of a tag; its length if nothing is.

    Tags begin with the same letter, and do not have it again.
    """
    at = text.rfind(tags[0][0])
    return at if at >= 0 and any(tag.startswith(text[at:]) for tag in tags) else len(text)


class Splitter(abc.ABC):
    """Text of a reply in, parts out. A tag is recognised wherever its letters lie among pieces."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, text: str) -> Parts:
        """What `text` completes; what may be the beginning of a tag is held back."""
        self._held += text
        parts = Parts()
        while self._step(parts):
            pass
        return parts

    @abc.abstractmethod
    def rest(self) -> Parts:
        """What was held back; the reply has ended."""

    @abc.abstractmethod
    def _step(self, parts: Parts) -> bool:
        """Goes on by a state; False when more text is needed."""

    def _until(self, tag: str) -> tuple[str, bool]:
        """Takes what is before `tag`, and the tag; without it, all that cannot be its beginning."""
        before, found, after = self._held.partition(tag)
        cut = len(before) if found else cut_before_tag(before, (tag,))
        self._held = after if found else before[cut:]
        return before[:cut], bool(found)


class ReplyParts(Splitter):
    """Reasoning between `<think>` and `</think>`, and calls in the forms of `tool_calls.py` and `parameter_tags.py`.

    Args:
        tools: Names that a call may have; an empty set leaves calls in the content.
        is_thinking: The prompt ends with `<think>`: the reply begins with reasoning.
        schemas: Of the arguments of tools, by name, where they are known.
    """

    def __init__(
        self,
        tools: frozenset[str] = frozenset(),
        *,
        is_thinking: bool = False,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        super().__init__()
        self._tools, self._schemas = tools, schemas or {}
        self._arguments: ArgumentsText | ParameterTags = ArgumentsText()
        self._state = "thought" if is_thinking else "begin"

    def rest(self) -> Parts:
        parts, held, self._held = Parts(), self._held, ""
        if self._state == "thinking":
            parts.reasoning = held
        elif self._state == "call":  # it is not known whom it calls
            parts.content = BEGIN_CALL + held
        elif self._state in ("arguments", "bare"):  # a value in tags is nothing before its end
            if held and isinstance(self._arguments, ArgumentsText):
                parts.add_arguments(held)
        elif self._state not in ("called", "bare called"):
            parts.content = held
        return parts

    def _step(self, parts: Parts) -> bool:
        return {
            "begin": self._begin,
            "thought": lambda _: self._skip_lines("thinking"),  # what follows <think>
            "thinking": self._thinking,
            "gap": lambda _: self._skip_lines("saying"),  # between a call and what follows
            "thought over": lambda _: self._skip_lines("first"),
            "first": self._first,
            "bare": self._take_arguments,
            "bare called": self._end_of_bare,
            "saying": self._saying,
            "call": self._call,
            "arguments": self._take_arguments,
            "called": self._end_of_call,
        }[self._state](parts)

    def _begin(self, parts: Parts) -> bool:
        start = self._held.lstrip()
        if _THINK.startswith(start[: len(_THINK)]) and len(start) < len(_THINK):
            return False
        if start.startswith(_THINK):
            self._held, self._state = start[len(_THINK) :], "thought"
        else:
            self._state = "first"
        return True

    def _first(self, parts: Parts) -> bool:
        """What is said first may be a call without a tag."""
        head = bare_head(self._held, self._tools)
        if head is not None:
            parts.calls.append(CallPart(head[0]))
            self._held, self._arguments, self._state = head[1], ArgumentsText(), "bare"
        elif self._tools and may_be_bare(self._held, self._tools):
            return False
        else:
            self._state = "saying"
        return True

    def _end_of_bare(self, parts: Parts) -> bool:
        text = self._held.lstrip(" \n}")
        if not text:
            return False
        self._held, self._state = (text[1:], "first") if text[0] in ",;" else (text.removeprefix("]"), "gap")
        return True

    def _thinking(self, parts: Parts) -> bool:
        before, found = self._until(_END_THINK)
        parts.reasoning += before
        self._state = "thought over" if found else "thinking"
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
        before, found = self._until(BEGIN_CALL)
        parts.content += before
        self._state = "call" if found else "saying"
        return found

    def _call(self, parts: Parts) -> bool:
        head = call_head(self._held, self._tools)
        if head is not None:
            name, self._held = head
            parts.calls.append(CallPart(name))
            self._arguments, self._state = ArgumentsText(), "arguments"
            return True
        tagged = tagged_head(self._held, self._tools)
        if tagged is not None:
            name, self._held, form = tagged
            parts.calls.append(CallPart(name))
            self._arguments, self._state = ParameterTags(self._schemas.get(name, {}), form), "arguments"
            return True
        inside, end, after = self._held.partition(END_CALL)
        if not end:
            return False
        call = whole_call(inside, self._tools)
        if call is None:
            parts.content += BEGIN_CALL + inside + end
        else:
            parts.calls.append(call)
        self._held, self._state = after, "gap"
        return True

    def _take_arguments(self, parts: Parts) -> bool:
        text, self._held, has_ended = self._arguments.take(self._held)
        if text:
            parts.add_arguments(text)
        if has_ended:
            self._state = "called" if self._state == "arguments" else "bare called"
        return has_ended

    def _end_of_call(self, parts: Parts) -> bool:
        found = self._until(END_CALL)[1]
        self._state = "gap" if found else "called"
        return found


class ForcedCall:
    """The parts of a reply that a grammar makes a call.

    Args:
        name: Of the function whose arguments the whole reply is; None where it is an object with name and arguments.
        tools: Names that a call may have.
    """

    def __init__(self, name: str | None, tools: frozenset[str]):
        self._name, self._tools, self._held = name, tools, ""
        self._has_begun = self._has_ended = False
        self._arguments = ArgumentsText()

    def add(self, text: str) -> Parts:
        """What `text` adds to the call."""
        parts = Parts()
        self._held += text
        if not self._has_begun and self._held:
            head = (self._name, self._held) if self._name is not None else call_head(self._held, self._tools)
            if head is None:
                return parts
            self._has_begun, self._held = True, head[1]
            parts.calls.append(CallPart(head[0]))
        if self._name is not None:
            new, self._held = self._held, ""
        elif not self._has_ended:
            new, self._held, self._has_ended = self._arguments.take(self._held)
        else:
            return parts
        if new:
            parts.add_arguments(new)
        return parts

    def rest(self) -> Parts:
        """What is left; a reply that was cut off before it named a function is content."""
        if self._has_begun:
            return Parts()
        if self._name is not None:
            return Parts(calls=[CallPart(self._name)])
        call = whole_call(self._held, self._tools)
        return Parts(content=self._held) if call is None else Parts(calls=[call])
