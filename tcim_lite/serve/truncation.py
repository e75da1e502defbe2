"""Conversations that are longer than the context, whose oldest turns a client allows to be left out."""

from __future__ import annotations

import bisect
from collections.abc import Callable

from ..llm.media import Seen
from .errors import ApiError
from .protocol import Message

Prompt = tuple[str, list[int], list[tuple[str, Seen]]]  # as text and as tokens; its images and sounds
_SYSTEM = ("system", "developer")


def prompt_within(messages: list[Message], prompt_of: Callable[[list[Message]], Prompt], room: int) -> Prompt:
    """The prompt of a conversation without as many of its oldest turns as have to go for at most `room` tokens.

    A turn begins with a message of the user, so that no result of a tool is without its call. System messages stay, and
    so does the last turn, which may be longer than `room`.

    Raises:
        ApiError: As `prompt_of`.
    """
    begins = _begins(messages)
    found: dict[int, Prompt] = {}

    def made(number: int) -> Prompt:
        begin = begins[number]
        system = [message for message in messages[:begin] if message.role in _SYSTEM]
        found[number] = prompt_of([*system, *messages[begin:]])
        return found[number]

    def fits(number: int) -> bool:
        try:
            return len(made(number)[1]) <= room
        except ApiError as error:
            if error.code != "context_length_exceeded":
                raise
            return False

    last = len(begins) - 1
    if last == 0:
        return made(0)
    if fits(0):
        return found[0]
    number = bisect.bisect_left(range(last), True, lo=1, key=fits)
    return found[number] if number < last else made(last)


def _begins(messages: list[Message]) -> list[int]:
    """Where the conversation may begin: with all that there is, or with a turn that has another message before it."""
    begins, can_lose = [0], False
    for index, message in enumerate(messages):
        if message.role == "user" and can_lose:
            begins.append(index)
        can_lose = can_lose or message.role not in _SYSTEM
    return begins
