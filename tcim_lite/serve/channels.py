"""Splits a reply of gpt-oss as it grows: messages, each with the channel that says what it is for."""

from __future__ import annotations

import re

from .reply_parts import Parts, Splitter, cut_before_tag
from .tool_calls import CallPart

# A prompt ends with the first; behind the second is what the model says to the user.
BEGIN_REPLY, _TO_USER = "<|start|>assistant", "<|channel|>final<|message|>"
BEGIN_ANSWER = BEGIN_REPLY + _TO_USER
# Tokens after which the model does nothing more: it has answered, or waits for a tool.
END_REPLY = ("<|return|>", "<|call|>")

_MESSAGE, _START = "<|message|>", "<|start|>"
_ENDS = re.compile(r"<\|(?:start|end|call|return)\|>")
_END_TAGS = (_START, "<|end|>", *END_REPLY)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"(?<!\S)to=(?:functions\.)?([^\s<]+)")


def has_channels(prompt: str) -> bool:
    """Whether the reply to a prompt has channels."""
    return prompt.endswith((BEGIN_REPLY, BEGIN_ANSWER))


def before_answer(prompt: str) -> str:
    """What has to follow a prompt so that the reply is what the model says to the user; nothing without channels."""
    return _TO_USER if prompt.endswith(BEGIN_REPLY) else ""


class ChannelParts(Splitter):
    """Text with special tokens, in messages.

    A message of the channel `analysis` is reasoning, one to a tool that was given is a call, and any other is content.
    Messages of one kind are separated by a line end. A reply that begins without a tag is content.

    Args:
        prompt: For which `has_channels` is true.
        tools: Names that a call may have.
    """

    def __init__(self, prompt: str, tools: frozenset[str] = frozenset()):
        super().__init__()
        self._tools = tools
        self._state = "content" if prompt.endswith(BEGIN_ANSWER) else "begin"
        self._told = {self._state}  # kinds of messages that have begun, and other states

    def rest(self) -> Parts:
        # A message that was cut off before it began is nothing.
        parts, held, self._held = Parts(), self._held, ""
        self._state = "content" if self._state == "begin" else self._state
        self._tell(parts, held)
        return parts

    def _step(self, parts: Parts) -> bool:
        if self._state == "done":
            self._held = ""
        elif self._state == "begin":
            start = self._held.lstrip()
            if not start or "<|".startswith(start) or "to=".startswith(start):
                return False
            self._state = "header" if start.startswith(("<|", "to=")) else "content"
            self._told = {self._state}
            return True
        elif self._state == "header":
            header, found, after = self._held.partition(_MESSAGE)
            if found:
                self._held = after
                self._begin(parts, header)
                return True
        elif (end := _ENDS.search(self._held)) is not None:
            self._tell(parts, self._held[: end.start()])
            self._held = self._held[end.end() :]
            self._state = "done" if end[0] in END_REPLY else "header"
            return True
        else:
            cut = cut_before_tag(self._held, _END_TAGS)
            self._tell(parts, self._held[:cut])
            self._held = self._held[cut:]
        return False

    def _begin(self, parts: Parts, header: str) -> None:
        """Begins the message that a header announces."""
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header.replace("<|", " <|"))
        if recipient is not None and recipient[1] in self._tools:
            parts.calls.append(CallPart(recipient[1]))
            self._state = "call"
            return
        self._state = "reasoning" if channel is not None and channel[1] == "analysis" else "content"
        if self._state in self._told:
            self._tell(parts, "\n")
        self._told.add(self._state)

    def _tell(self, parts: Parts, text: str) -> None:
        if self._state == "reasoning":
            parts.reasoning += text
        elif self._state == "content":
            parts.content += text
        elif self._state == "call" and text:
            parts.add_arguments(text)
