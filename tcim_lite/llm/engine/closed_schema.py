"""JSON schemas whose objects have the properties that they list and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_MAPS = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SAYS = {"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "minProperties"}
# An object is put together from several schemas, each of which would forbid the properties of the others.
_COMBINES = {"if", "not", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"}
_COMBINES_BESIDE_PROPERTIES = {"anyOf", "oneOf", "allOf", "$ref"}


def closed(text: str) -> str:
    """The schema with `additionalProperties` false in every object that lists properties and does not say.

    llama.cpp and vLLM (with xgrammar) read schemas so. By the standard's rule, which allows any other property, small
    models go on with properties of their own until the answer is cut off.
    """
    try:
        return json.dumps(_closed(json.loads(text)))
    except (ValueError, RecursionError):
        return text  # llguidance says what is wrong with it


def _closed(schema: Any) -> Any:
    found = list(_subschemas(schema))
    if any(_combines(node) for node in found):
        return schema
    for node in found:
        properties = node.get("properties")
        if isinstance(properties, dict) and not _SAYS & node.keys() and _lists(properties, node.get("required")):
            node["additionalProperties"] = False
    return schema


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
    return required is None or (isinstance(required, list) and all(name in properties for name in required))
