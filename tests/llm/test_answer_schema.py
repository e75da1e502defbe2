"""How JSON schemas of answers are read: objects without other properties, formats."""

import functools
import json

import pytest

from tcim_lite.llm.engine.answer_schema import answer_schema


@pytest.mark.parametrize(
    ("schema", "closes"),
    [
        ({"properties": {"a": {"type": "null"}}}, [()]),
        ({"properties": {}}, [()]),
        ({"type": "object"}, []),
        ({"properties": {"a": {}}, "additionalProperties": True}, []),
        ({"properties": {"a": {}}, "patternProperties": {"x": {}}}, []),
        ({"properties": {"a": {}}, "required": ["b"]}, []),
        ({"properties": {"a": {}}, "required": [["a"]]}, []),
        ({"patternProperties": {"x": {"properties": {"a": {}}}}}, [("patternProperties", "x")]),
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
    assert json.loads(answer_schema(json.dumps(schema))) == expected


@pytest.mark.parametrize("text", ["{", "[]", "true", '{"items": ' * 10_000 + "{}" + "}" * 10_000], ids=len)
def test_what_is_no_object_or_too_deep_stays(text):
    assert answer_schema(text) == text


def test_what_says_nothing_of_names_is_left_out():
    schema = {"propertyNames": {"type": "string"}, "additionalProperties": {"propertyNames": {"pattern": "a"}}}
    held = {"additionalProperties": {"propertyNames": {"pattern": "a"}}}
    assert json.loads(answer_schema(json.dumps(schema))) == held


def test_unknown_formats_are_annotations():
    schema = {"properties": {"a": {"format": "password"}, "format": {"format": "uuid"}}, "allOf": [{"format": "x"}]}
    held = {"properties": {"a": {}, "format": {"format": "uuid"}}, "allOf": [{}]}
    schema["patternProperties"], held["patternProperties"] = {"format": {"format": "x"}}, {"format": {}}
    assert json.loads(answer_schema(json.dumps(schema))) == held
