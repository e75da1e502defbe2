"""Messages as chat templates read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .errors import ApiError
from .media_parts import KINDS
from .protocol import ContentPart, Message

_TYPES = {"image": "image", "sound": "audio"}  # as templates call them


def plain(message: Message, index: int, marks: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """A message as templates read it: text content, arguments of calls as objects.

    Content with images or sounds is a list of parts; or, where marks stand for them, text in lines.

    Raises:
        ApiError: It has no content, or a part that cannot be read.
    """
    content: Any = message.content
    if isinstance(content, list):
        content = _content(content, index, marks)
    elif content is None and message.role != "assistant":
        raise ApiError(400, f"messages[{index}]: a message of role {message.role!r} needs content", param="messages")
    made: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": content or ""}
    thought = message.reasoning if message.reasoning_content is None else message.reasoning_content
    told = {"name": message.name, "tool_call_id": message.tool_call_id, "reasoning_content": thought}
    made |= {name: value for name, value in told.items() if value is not None}
    if message.tool_calls:
        if message.reasoning_content and not content:
            made["thinking"] = message.reasoning_content  # as gpt-oss's template calls it, where it takes it
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    return made


def _content(parts: list[ContentPart], index: int, marks: Mapping[str, str]) -> str | list[dict[str, str]]:
    if not any(part.type in KINDS for part in parts):
        return "".join(_text(part, index) for part in parts)
    if marks:
        return "\n".join(marks.get(KINDS.get(part.type, "")) or _text(part, index) for part in parts)
    return [
        {"type": _TYPES[KINDS[part.type]]} if part.type in KINDS else {"type": "text", "text": _text(part, index)}
        for part in parts
    ]


def _text(part: ContentPart, index: int) -> str:
    if part.type not in ("text", "refusal"):
        raise ApiError(
            400,
            f"messages[{index}]: a part of type {part.type!r:.40}; expected text, image_url where the package sees "
            "images, or input_audio where it hears",
            param="messages",
        )
    text = part.text if part.type == "text" else part.refusal
    if text is None:
        raise ApiError(400, f"messages[{index}]: a part of type {part.type!r} has no {part.type}", param="messages")
    return text


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
