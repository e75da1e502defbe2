"""Calls behind marks, as Mistral writes them: `[TOOL_CALLS]name[ARGS]{...}`."""

import pytest
from channel_package import echo, with_channels
from test_serve_parts import call, every_way_to_cut, joined

from tcim_lite.serve.marked_calls import MarkedParts
from tcim_lite.serve.reply_forms import parts_of
from tcim_lite.serve.reply_parts import Parts
from tcim_lite.serve.tool_calls import CallPart

# The prompt ends with the two tokens behind which the demo model begins replies.
TEXTS = {"<|im_start|>": "[INST]", "assistant": "[/IN", "\u010a": "ST]"}
TEXTS |= {"1": "[TOOL_CALLS]", "2": "add", "3": "[ARGS]", "4": '{"a": 1}', "9": "hm"}
TEMPLATE = (
    "{% for message in messages %}[INST]{{ message.role }}ST]{{ message.content }}<|im_end|>ST]{% endfor %}"
    "{% if add_generation_prompt %}[INST][/INST]{% endif %}"
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[TOOL_CALLS]add[ARGS]{"a": 1}', Parts(calls=[call()])),
        ('[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[ARGS]{}', Parts(calls=[call(), call("{}")])),
        ('[TOOL_CALLS]add[CALL_ID]a1b2c3d4e[ARGS]{"a": 1}', Parts(calls=[call()])),
        ('So: [1] [TOOL_CALLS] add [ARGS] {"a": "]}"}', Parts(content='So: [1] [TOOL_CALLS] add [ARGS] {"a": "]}"}')),
        ('So: [1] [TOOL_CALLS] add[ARGS] {"a": "]}"}', Parts(content="So: [1] ", calls=[call('{"a": "]}"}')])),
        (
            '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {}}]',
            Parts(calls=[call(), call("{}")]),
        ),
        ('[TOOL_CALLS]rm[ARGS]{"a": 1}', Parts(content='[TOOL_CALLS]rm[ARGS]{"a": 1}')),
        ("[TOOL_CALLS]add", Parts(content="[TOOL_CALLS]add")),
        ('[TOOL_CALLS]add[ARGS]{"a"', Parts(calls=[CallPart("add", '{"a"')])),
        ("[TOOL", Parts(content="[TOOL")),
        ("a list [1, 2] and more", Parts(content="a list [1, 2] and more")),
    ],
)
def test_a_call_is_one_wherever_the_pieces_end(text, wanted):
    for pieces in every_way_to_cut(text):
        assert joined(MarkedParts(frozenset({"add"})), pieces) == wanted, pieces


def test_without_tools_it_is_text():
    text = '[TOOL_CALLS]add[ARGS]{"a": 1}'
    assert joined(parts_of("[INST]a[/INST]"), list(text)) == Parts(content=text)


def test_the_server_knows_the_form_by_the_prompt(packages, tmp_path, start):
    """The marks are special tokens, which other replies do not have in their text."""
    live = start(folder=with_channels(packages(4).folder, tmp_path / "marked", TEXTS, TEMPLATE))
    tools = [{"type": "function", "function": {"name": "add"}}]
    body = {"messages": [{"role": "user", "content": echo("91234", TEXTS)}], "max_tokens": 8}
    choice = live.post("/v1/chat/completions", json={**body, "tools": tools}).json()["choices"][0]
    (made,) = choice["message"]["tool_calls"]
    assert made["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert (choice["message"]["content"], choice["finish_reason"]) == ("hm", "tool_calls")
