"""Reads the arguments of a call in tags while it is written, as Qwen3.5, Qwen3-Coder and GLM-4.5 write it."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from .tool_calls import END_CALL, as_json


@dataclass(frozen=True)
class TagForm:
    """How a family writes a call, between `<tool_call>` and `</tool_call>`.

    Attributes:
        head: what is before the parameters; group 1 is the tool's name.
        parameter: what is before a value; group 1 is the parameter's name.
        begin: how `parameter` begins.
        unfinished: matches text that begins so and may become a `parameter`.
        end_value: what is behind a value.
        end: what is behind the last parameter.
    """

    head: re.Pattern[str]
    parameter: re.Pattern[str]
    begin: str
    unfinished: re.Pattern[str]
    end_value: str
    end: str

    @property
    def next(self) -> re.Pattern[str]:
        """Where a value ends whose tag is missing."""
        return re.compile("|".join(map(re.escape, (self.begin, self.end, END_CALL))))


QWEN = TagForm(
    head=re.compile(r"\s*<function=([^>\n]+)>"),
    parameter=re.compile(r"<parameter=([^>\n]+)>"),
    begin="<parameter=",
    unfinished=re.compile(r"<parameter=[^>\n]*\Z"),
    end_value="</parameter>",
    end="</function>",
)
GLM = TagForm(
    head=re.compile(rf"\s*([^\s<{{]+)\s*(?=<arg_key>|{END_CALL})"),
    parameter=re.compile(r"<arg_key>([^<\n]+)</arg_key>\s*<arg_value>"),
    begin="<arg_key>",
    unfinished=re.compile(rf"<arg_key>(?!.*(<arg_value>|{END_CALL}))", re.DOTALL),
    end_value="</arg_value>",
    end=END_CALL,
)


def tagged_head(text: str, tools: Container[str]) -> tuple[str, str, TagForm] | None:
    """Name of the tool that is called, the text from its arguments on, and its form; None while `text` says none."""
    for form in (QWEN, GLM):
        head = form.head.match(text)
        if head is not None and head[1] in tools:
            return head[1], text[head.end() :], form
    return None


class ParameterTags:
    """Makes a JSON object of parameters in tags, which come in pieces.

    Args:
        schema: Of the arguments; it says which values are texts. Those of parameters that it does not have are.
        form: How they are written.
    """

    def __init__(self, schema: Mapping[str, Any], form: TagForm):
        self._form, properties = form, schema.get("properties")
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
            if (tag := self._form.parameter.match(text)) is not None:
                found = self._value(text[tag.end() :])
                if found is None:
                    return made, text, False
                value, text = found
                made += f"{', ' if self._count else '{'}{json.dumps(tag[1])}: {self._as_json(tag[1], value)}"
                self._count += 1
            elif text.startswith((self._form.end, END_CALL)):
                return made + ("}" if self._count else "{}"), text, True
            elif not text or self._may_begin_tag(text):
                return made, text, False
            else:  # no tag of a call
                text = text[1:]

    def _value(self, text: str) -> tuple[str, str] | None:
        """A value, and what follows its end; None where the end is missing so far."""
        value, found, after = text.partition(self._form.end_value)
        if END_CALL in value or (not found and END_CALL in text):
            end = self._form.next.search(text)
            assert end is not None
            value, after = text[: end.start()], text[end.start() :]
        elif not found:
            return None
        return value.removeprefix("\n").removesuffix("\n"), after

    def _may_begin_tag(self, text: str) -> bool:
        tags = (self._form.begin, self._form.end, END_CALL)
        return any(tag.startswith(text) for tag in tags) or self._form.unfinished.match(text) is not None

    def _as_json(self, name: str, value: str) -> str:
        kinds = _kinds(self._properties.get(name))
        if not kinds or "string" in kinds:
            return "null" if value == "null" and "null" in kinds else json.dumps(value, ensure_ascii=False)
        try:
            return as_json({"True": "true", "False": "false", "None": "null"}.get(value, value))
        except ValueError:
            return json.dumps(value, ensure_ascii=False)


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
