"""JSON schemas of answers, read as llama.cpp and vLLM (with xgrammar) read them, not by the standard's letter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SAYS = {"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "minProperties"}
# An object is put together from several schemas, each of which would forbid the properties of the others.
_COMBINES = {"if", "not", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"}
_COMBINES_BESIDE_PROPERTIES = {"anyOf", "oneOf", "allOf", "$ref"}
# Of strings, that llguidance holds. It refuses schemas with others, such as pydantic's "password".
_FORMATS = {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}


def answer_schema(text: str) -> str:
    """The schema that an answer is held to.

    - An object that lists properties and does not say whether it takes others takes none. By the standard's rule, which
      allows any, small models go on with properties of their own until the answer is cut off.
    - A format that is not known is an annotation.
    - Names of properties that are strings are what they always are; zod says so of every record.
    """
    try:
        schema = json.loads(text)
        found = list(_subschemas(schema))
        for node in found:
            if isinstance(node.get("format"), str) and node["format"] not in _FORMATS:
                del node["format"]
            if node.get("propertyNames") == {"type": "string"}:
                del node["propertyNames"]
        _close(found)
        return json.dumps(schema)
    except (ValueError, RecursionError):
        return text  # llguidance says what is wrong with it


def _close(schemas: list[dict[str, Any]]) -> None:
    if any(_combines(node) for node in schemas):
        return
    for node in schemas:
        properties = node.get("properties")
        if isinstance(properties, dict) and not _SAYS & node.keys() and _lists(properties, node.get("required")):
            node["additionalProperties"] = False


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it. Not by recursion: a client's may be deep."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        yield node
        for name in _MAPS:
            waiting += value.values() if isinstance(value := node.get(name), dict) else ()
        for name in _LISTS:
            waiting += value if isinstance(value := node.get(name), list) else (value,)
        waiting.append(node.get("additionalProperties"))


def _combines(node: dict[str, Any]) -> bool:
    many = isinstance(node.get("allOf"), list) and len(node["allOf"]) > 1
    beside = "properties" in node and bool(_COMBINES_BESIDE_PROPERTIES & node.keys())
    return many or beside or bool(_COMBINES & node.keys())


def _lists(properties: dict[str, Any], required: Any) -> bool:
    """Whether all properties that an object must have are among those listed."""
    names = required if isinstance(required, list) else [None]
    return required is None or all(isinstance(name, str) and name in properties for name in names)
