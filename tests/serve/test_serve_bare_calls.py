"""Calls without a tag, as Llama, Mistral and others write them."""

import pytest
from serve_live import QUESTIONS
from test_serve_parts import call, every_way_to_cut, joined

from tcim_lite.serve.reply_parts import Parts, ReplyParts
from tcim_lite.serve.tool_calls import CallPart


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"name": "add", "parameters": {"a": 1}}', Parts(calls=[call()])),
        ('<think>x</think>\n\n{"name": "add", "parameters": {"a": 1}}', Parts("x", calls=[call()])),
        (
            '[{"name": "add", "arguments": {"a": 1}}, {"name":"add","arguments":{}}]',
            Parts(calls=[call(), call("{}")]),
        ),
        (
            '{"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {}}',
            Parts(calls=[call(), call("{}")]),
        ),
        ('{"name": "add", "parameters": {"a"', Parts(calls=[call('{"a"')])),
        ('{"name": "rm", "parameters": {}}', Parts(content='{"name": "rm", "parameters": {}}')),
        ('{"name": "add", "age": 3}' + " " * 90, Parts(content='{"name": "add", "age": 3}' + " " * 90)),
        ('{"name": "add"', Parts(content='{"name": "add"')),
        ('{"name": "add two", "parameters": {}}', Parts(calls=[CallPart("add two", "{}")])),
        (
            f'{{"name": {" " * 60}"add", "parameters": {{}}}}',
            Parts(content=f'{{"name": {" " * 60}"add", "parameters": {{}}}}'),
        ),
        (' [1, {"name": "add"}]', Parts(content=' [1, {"name": "add"}]')),
        # Granite's, whose tag has no end.
        ('<|tool_call|>[{"name": "add", "arguments": {"a": 1}}]', Parts(calls=[call()])),
        (
            '<tool_call>[{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {}}]',
            Parts(calls=[call(), call("{}")]),
        ),
        (
            '<|tool_call|> [{"name": "rm", "arguments": {}}]',
            Parts(content='<|tool_call|> [{"name": "rm", "arguments": {}}]'),
        ),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', Parts(calls=[call()])),
        ("<|tool", Parts(content="<|tool")),
        ('So: {"name": "add", "parameters": {}}', Parts(content='So: {"name": "add", "parameters": {}}')),
    ],
)
def test_a_reply_that_is_a_call_is_one_wherever_the_pieces_end(text, wanted):
    for pieces in every_way_to_cut(text):
        assert joined(ReplyParts(frozenset({"add", "add two"})), pieces) == wanted, pieces


def test_without_tools_it_is_text():
    text = '{"name": "add", "parameters": {"a": 1}}'
    assert joined(ReplyParts(), list(text)) == Parts(content=text)


def test_the_server_passes_it_on(client):
    tools = [{"type": "function", "function": {"name": "add"}}]
    guide = {"structured_outputs": {"regex": r'\{"name": "add", "parameters": \{"a": 42\}\}'}}
    question = [{"role": "user", "content": QUESTIONS[0]}]
    options = {"model": "qwen3", "messages": question, "tools": tools, "extra_body": guide, "max_tokens": 100}
    choice = client.chat.completions.create(**options).choices[0]
    (made,) = choice.message.tool_calls
    assert (choice.message.content, made.function.arguments, choice.finish_reason) == (None, '{"a": 42}', "tool_calls")
    none = client.chat.completions.create(**options, tool_choice="none").choices[0].message
    assert (none.tool_calls, none.content) == (None, '{"name": "add", "parameters": {"a": 42}}')
