"""Calls whose parameters are in tags, as Qwen3.5 writes them."""

import json

import pytest
from serve_live import QUESTIONS
from test_serve_parts import every_way_to_cut, joined

from tcim_lite.serve.reply_parts import Parts, ReplyParts
from tcim_lite.serve.tool_calls import CallPart

PROPERTIES = {
    "a": {"type": "integer"},
    "text": {"type": "string"},
    "list": {"type": "array", "items": {"type": "string"}},
    "flag": {"type": "boolean"},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "number": {"type": ["number", "null"]},
    "either": {"oneOf": [{"type": "integer"}, {"type": "null"}]},
    "any": {"description": "of any type"},
    # What no schema has, but a client may send.
    "odd": {"type": 5, "anyOf": 3, "oneOf": True},
}
SCHEMAS = {"add": {"type": "object", "properties": PROPERTIES}}


def written(function="add", **values):
    parameters = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items())
    return f"<tool_call>\n<function={function}>\n{parameters}</function>\n</tool_call>"


def call(**values):
    return CallPart("add", json.dumps(values, ensure_ascii=False))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (written(a=1), Parts(calls=[call(a=1)])),
        (written(), Parts(calls=[call()])),
        (f"So:\n{written(a=1)}\n{written(a=2)}", Parts(content="So:\n", calls=[call(a=1), call(a=2)])),
        ("<think>\nhm\n</think>\n\n" + written(a=1), Parts("hm\n", calls=[call(a=1)])),
        (written(text="1", maybe="null", number="null"), Parts(calls=[call(text="1", maybe=None, number=None)])),
        (written(either="5"), Parts(calls=[call(either=5)])),
        (written(list='["x", 1]', flag="True"), Parts(calls=[call(list=["x", 1], flag=True)])),
        (written(any="1", other="[2]"), Parts(calls=[call(any="1", other="[2]")])),
        # What is not of its type is passed on as it is.
        (written(a="one"), Parts(calls=[call(a="one")])),
        (written(odd="1", number="NaN", a="1e999"), Parts(calls=[call(odd="1", number="NaN", a="1e999")])),
        (written(list=r'["\ud800"]'), Parts(calls=[CallPart("add", r'{"list": ["\ud800"]}')])),
        (written(text="\nif a < b:\n  <b>é</b>\n"), Parts(calls=[call(text="\nif a < b:\n  <b>é</b>\n")])),
        (written("rm", a=1), Parts(content=written("rm", a=1))),
        # Missing ends.
        (written(a=1, text="x").replace("</parameter>", ""), Parts(calls=[call(a=1, text="x\n")])),
        (written(a=1).replace("</function>\n", "") + "!", Parts(content="!", calls=[call(a=1)])),
        (written(a=1)[: -len("\n</parameter>\n</function>\n</tool_call>")], Parts(calls=[CallPart("add", "")])),
        (written(a=1)[: -len("</function>\n</tool_call>")], Parts(calls=[CallPart("add", '{"a": 1')])),
    ],
)
def test_parameters_become_arguments_wherever_the_pieces_end(text, wanted):
    for pieces in every_way_to_cut(text):
        assert joined(ReplyParts(frozenset({"add"}), schemas=SCHEMAS), pieces) == wanted, pieces


def glm(function="add", line="\n", **values):
    """As GLM-4.5 writes a call; later versions do so without line ends."""
    pairs = "".join(
        f"<arg_key>{name}</arg_key>{line}<arg_value>{value}</arg_value>{line}" for name, value in values.items()
    )
    return f"<tool_call>{function}{line}{pairs}</tool_call>"


@pytest.mark.parametrize("line", ["\n", ""])
@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([{"a": 1}], Parts(calls=[call(a=1)])),
        ([{}], Parts(calls=[call()])),
        (["So: ", {"a": 1}, {"a": 2}], Parts(content="So: ", calls=[call(a=1), call(a=2)])),
        (["<think>hm</think>\n", {"a": 1}], Parts("hm", calls=[call(a=1)])),
        ([{"text": "1", "flag": "true", "list": '["x"]'}], Parts(calls=[call(text="1", flag=True, list=["x"])])),
        ([{"text": "if a < b:\n  <b>é</b>"}], Parts(calls=[call(text="if a < b:\n  <b>é</b>")])),
        ([{"other": "[2]", "a": "one"}], Parts(calls=[call(other="[2]", a="one")])),
    ],
)
def test_pairs_of_tags_become_arguments_wherever_the_pieces_end(parts, wanted, line):
    text = "".join(part if isinstance(part, str) else glm(line=line, **part) + line for part in parts)
    for pieces in every_way_to_cut(text):
        assert joined(ReplyParts(frozenset({"add"}), schemas=SCHEMAS), pieces) == wanted, pieces


def test_pairs_of_tags_that_are_no_call_or_no_whole_one():
    tools = frozenset({"add"})
    for text, wanted in (
        (glm("rm", a=1), Parts(content=glm("rm", a=1))),
        (glm(a=1, text="x").replace("</arg_value>", ""), Parts(calls=[call(a=1, text="x")])),
        (glm(a=1)[: -len("</arg_value>\n</tool_call>")], Parts(calls=[CallPart("add", "")])),
        (glm(a=1)[: -len("</tool_call>")], Parts(calls=[CallPart("add", '{"a": 1')])),
        ("<tool_call>add\n<arg_key>a</arg_key>\n</tool_call>!", Parts(content="!", calls=[call()])),
    ):
        for pieces in every_way_to_cut(text):
            assert joined(ReplyParts(tools, schemas=SCHEMAS), pieces) == wanted, pieces


def test_the_server_knows_the_schemas(client):
    tools = [{"type": "function", "function": {"name": "add", "parameters": SCHEMAS["add"]}}]
    guide = {"structured_outputs": {"regex": written(a=42).replace("\n", "\\n")}}
    question = [{"role": "user", "content": QUESTIONS[0]}]
    options = {"model": "qwen3", "messages": question, "tools": tools, "extra_body": guide, "max_tokens": 200}
    choice = client.chat.completions.create(**options).choices[0]
    (made,) = choice.message.tool_calls
    assert (made.function.name, made.function.arguments, choice.finish_reason) == ("add", '{"a": 42}', "tool_calls")
    with client.chat.completions.stream(**options) as stream:
        (made,) = stream.get_final_completion().choices[0].message.tool_calls
    assert made.function.arguments == '{"a": 42}'
