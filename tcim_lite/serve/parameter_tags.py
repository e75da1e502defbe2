"""Reads the arguments of a call that is written in tags, as Qwen3.5 and Qwen3-Coder do, while it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from typing import Any

from .tool_calls import END_CALL, as_json

_HEAD = re.compile(r"\s*<function=([^>\n]+)>")
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>")
_END_VALUE, _END_FUNCTION = "</parameter>", "</function>"
# Where a value ends whose tag is missing.
_NEXT = re.compile(rf"<parameter=|{_END_FUNCTION}|{END_CALL}")


def tagged_head(text: str, tools: Container[str]) -> tuple[str, str] | None:
    """Name of the tool that is called, and the text from its arguments on; None while `text` does not say so."""
    head = _HEAD.match(text)
    return None if head is None or head[1] not in tools else (head[1], text[head.end() :])


class ParameterTags:
    """Makes a JSON object of parameters in tags, which come in pieces.

    Args:
        schema: Of the arguments; it says which values are texts. Those of parameters that it does not have are.
    """

    def __init__(self, schema: Mapping[str, Any]):
        properties = schema.get("properties")
        self._properties = properties if isinstance(properties, Mapping) else {}
        self._count = 0

    def take(self, text: str) -> tuple[str, str, bool]:
        """JSON that `text` completes, what is left of it, and whether the object has ended.

        Without an end, what is left has to be given again, with more text. The object also ends with `</tool_call>`.
        """
        made = ""
        while True:
            at = text.find("<")
            text = text[at:] if at >= 0 else ""
            if (tag := _PARAMETER.match(text)) is not None:
                found = self._value(text[tag.end() :])
                if found is None:
                    return made, text, False
                value, text = found
                made += f"{', ' if self._count else '{'}{json.dumps(tag[1])}: {self._as_json(tag[1], value)}"
                self._count += 1
            elif text.startswith((_END_FUNCTION, END_CALL)):
                return made + ("}" if self._count else "{}"), text, True
            elif not text or _may_begin_tag(text):
                return made, text, False
            else:  # no tag of a call
                text = text[1:]

    @staticmethod
    def _value(text: str) -> tuple[str, str] | None:
        """A value, and what follows its end; None where the end is missing so far."""
        value, found, after = text.partition(_END_VALUE)
        if END_CALL in value or (not found and END_CALL in text):
            end = _NEXT.search(text)
            assert end is not None
            value, after = text[: end.start()], text[end.start() :]
        elif not found:
            return None
        return value.removeprefix("\n").removesuffix("\n"), after

    def _as_json(self, name: str, value: str) -> str:
        kinds = _kinds(self._properties.get(name))
        if not kinds or "string" in kinds:
            return "null" if value == "null" and "null" in kinds else json.dumps(value, ensure_ascii=False)
        try:
            return as_json({"True": "true", "False": "false", "None": "null"}.get(value, value))
        except ValueError:
            return json.dumps(value, ensure_ascii=False)


def _may_begin_tag(text: str) -> bool:
    begins = any(tag.startswith(text) for tag in ("<parameter=", _END_FUNCTION, END_CALL))
    return begins or (text.startswith("<parameter=") and not re.search("[>\n]", text))


def _kinds(schema: Any) -> set[str]:
    """Types that a value of a schema may have; none where it does not say. Nothing else has checked the schema."""
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type")
    kinds = {item for item in (kind if isinstance(kind, list) else [kind]) if isinstance(item, str)}
    for name in ("anyOf", "oneOf"):
        parts = schema.get(name)
        for part in parts if isinstance(parts, list) else ():
            kinds |= _kinds(part)
    return kinds
