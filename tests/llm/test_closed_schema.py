"""Which objects of a JSON schema have no other properties than those it lists."""

import functools
import json

import pytest

from tcim_lite.llm.engine.closed_schema import closed


@pytest.mark.parametrize(
    ("schema", "closes"),
    [
        ({"properties": {"a": {"type": "null"}}}, [()]),
        ({"properties": {}}, [()]),
        ({"type": "object"}, []),
        ({"properties": {"a": {}}, "additionalProperties": True}, []),
        ({"properties": {"a": {}}, "patternProperties": {"x": {}}}, []),
        ({"properties": {"a": {}}, "required": ["b"]}, []),
        ({"properties": {"properties": {"properties": {}}}}, [(), ("properties", "properties")]),
        ({"properties": {"a": {"const": {"properties": {}}}}}, [()]),
        ({"items": {"anyOf": [{"properties": {}}, True]}}, [("items", "anyOf", 0)]),
        ({"allOf": [{"$ref": "#/$defs/b"}], "$defs": {"b": {"properties": {}}}}, [("$defs", "b")]),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, []),
        ({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, []),
    ],
    ids=str,
)
def test_objects_that_list_properties_have_no_others(schema, closes):
    expected = json.loads(json.dumps(schema))
    for path in closes:
        functools.reduce(lambda node, name: node[name], path, expected)["additionalProperties"] = False
    assert json.loads(closed(json.dumps(schema))) == expected


@pytest.mark.parametrize("text", ["{", "[]", "true", '{"items": ' * 10_000 + "{}" + "}" * 10_000], ids=len)
def test_what_is_no_object_or_too_deep_stays(text):
    assert closed(text) == text
