"""Splits a reply of Mistral as it grows: calls behind marks, `[TOOL_CALLS]name[ARGS]{...}`."""

from __future__ import annotations

import re

from .reply_parts import Parts, Splitter, cut_before_tag
from .tool_calls import ArgumentsText, CallPart, bare_head, may_be_bare

_ENDS = ("[/INST]", "[/TOOL_RESULTS]")  # of prompts
_CALLS = "[TOOL_CALLS]"
# Between name and arguments some versions give the call an id.
_HEAD = re.compile(r"\s*([^\s\[\]{}]+)(?:\[CALL_ID\][^\[\]{}]*)?\[ARGS\]\s*(?=\{)")
_MAY_BE_HEAD = re.compile(r"\s*[^\s\[\]{}]*(?:\[[A-Z_]*(?:\][^\[\]{}]*)?){0,2}\s*\Z")
END_REPLY: tuple[str, ...] = ()


def has_marks(prompt: str) -> bool:
    """Whether the reply to a prompt is of this form."""
    return prompt.rstrip().endswith(_ENDS)


class MarkedParts(Splitter):
    """Text with special tokens. Older versions write a list of objects behind the mark.

    Args:
        tools: Names that a call may have; other calls are content.
    """

    def __init__(self, tools: frozenset[str] = frozenset()):
        super().__init__()
        self._tools, self._state = tools, "saying"
        self._arguments = ArgumentsText()

    def rest(self) -> Parts:
        parts, held, self._held = Parts(), self._held, ""
        if self._state == "head":
            parts.content = _CALLS + held
        elif self._state == "arguments":
            if held:
                parts.add_arguments(held)
        elif self._state == "saying":
            parts.content = held
        return parts

    def _step(self, parts: Parts) -> bool:
        return {"saying": self._saying, "head": self._head, "arguments": self._take, "gap": self._gap}[self._state](
            parts
        )

    def _saying(self, parts: Parts) -> bool:
        before, found, after = self._held.partition(_CALLS)
        if not self._tools or not found:
            cut = cut_before_tag(self._held, (_CALLS,)) if self._tools else len(self._held)
            parts.content += self._held[:cut]
            self._held = self._held[cut:]
            return False
        parts.content += before
        self._held, self._state = after, "head"
        return True

    def _head(self, parts: Parts) -> bool:
        marked = _HEAD.match(self._held)
        head = bare_head(self._held, self._tools)
        if marked is not None and marked[1] in self._tools:
            head = marked[1], self._held[marked.end() :]
        if head is not None:
            parts.calls.append(CallPart(head[0]))
            self._held, self._arguments, self._state = head[1], ArgumentsText(), "arguments"
            return True
        if _MAY_BE_HEAD.match(self._held) or may_be_bare(self._held, self._tools):
            return False
        parts.content += _CALLS
        self._state = "saying"
        return True

    def _take(self, parts: Parts) -> bool:
        text, self._held, has_ended = self._arguments.take(self._held)
        if text:
            parts.add_arguments(text)
        if has_ended:
            self._state = "gap"
        return has_ended

    def _gap(self, parts: Parts) -> bool:
        """Behind a call: the end of its object, or another one, in a list or behind a mark."""
        text = self._held.lstrip(" \n}")
        if not text:
            return False
        if text[0] == ",":
            self._held, self._state = text[1:], "head"
        else:
            self._held, self._state = text.removeprefix("]").lstrip("\n"), "saying"
        return True
