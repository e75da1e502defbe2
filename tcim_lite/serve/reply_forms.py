"""Which form a reply has: the end of its prompt says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import channels, marked_calls, turns
from .channels import ChannelParts, has_channels
from .marked_calls import MarkedParts, has_marks
from .reply_parts import ReplyParts, Splitter
from .turns import TurnParts, has_turns


def end_tags(prompt: str) -> tuple[str, ...] | None:
    """Tokens that end the reply to a prompt, which has special tokens in its text; None for a reply without them."""
    if has_channels(prompt):
        return channels.END_REPLY
    if has_marks(prompt):
        return marked_calls.END_REPLY
    return turns.END_REPLY if has_turns(prompt) else None


def parts_of(
    prompt: str, tools: frozenset[str] = frozenset(), schemas: Mapping[str, Mapping[str, Any]] | None = None
) -> Splitter:
    """What splits the reply to a prompt.

    Args:
        prompt: Its text, or the end of it.
        tools: Names that a call may have.
        schemas: Of the arguments of tools, by name, where they are known.
    """
    if has_channels(prompt):
        return ChannelParts(prompt, tools)
    if has_turns(prompt):
        return TurnParts(tools)
    if has_marks(prompt):
        return MarkedParts(tools)
    return ReplyParts(tools, is_thinking=prompt.rstrip().endswith("<think>"), schemas=schemas)
