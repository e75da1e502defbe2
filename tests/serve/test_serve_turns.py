"""Replies of Gemma 4: thoughts in a channel, calls in a notation of their own."""

import pytest
from channel_package import TURNS, echo, with_turns
from test_serve_channels import TOOLS
from test_serve_parts import call, every_way_to_cut, joined

from tcim_lite.serve.reply_forms import parts_of
from tcim_lite.serve.reply_parts import Parts
from tcim_lite.serve.tool_calls import CallPart
from tcim_lite.serve.turns import TurnParts

THOUGHT = "<|channel>thought\nhm\n<channel|>"


def written(arguments, name="add"):
    return f"<|tool_call>call:{name}{arguments}<tool_call|>"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("42", Parts(content="42")),
        (THOUGHT + "42 < 43", Parts("hm\n", "42 < 43")),
        ("<|channel>thought\n<channel|>42", Parts(content="42")),
        ("<|channel>thought\nfor ever <", Parts("for ever <")),
        ("<|channel>tho", Parts()),
        ("a <|b> <|chan", Parts(content="a <|b> <|chan")),
        (written("{a:1}"), Parts(calls=[call()])),
        (THOUGHT + written("{a:1}") + written("{}"), Parts("hm\n", calls=[call(), call("{}")])),
        (
            written('{text:<|"|>{a: "1", b}<|"|>,list:[1,<|"|>x<|"|>],inner:{ok:true,no:null}}'),
            Parts(calls=[call('{"text": "{a: \\"1\\", b}", "list": [1, "x"], "inner": {"ok": true, "no": null}}')]),
        ),
        (written("{a:NaN}"), Parts(calls=[CallPart("add", "{a:NaN}")])),
        (written('{text:<|"|>né<|"|>}'), Parts(calls=[call('{"text": "né"}')])),
        (written("{a:}"), Parts(calls=[CallPart("add", "{a:}")])),
        (written("{}", "rm"), Parts(content=written("{}", "rm"))),
        (written("{a:1}")[:-3], Parts(content=written("{a:1}")[:-3])),
        ("", Parts()),
    ],
)
def test_a_reply_is_split_the_same_way_wherever_its_pieces_end(text, wanted):
    for pieces in every_way_to_cut(text) if text else [[""]]:
        assert joined(TurnParts(frozenset({"add"})), pieces) == wanted, pieces


@pytest.mark.parametrize("end", ["<|turn>model\n", "<|turn>model\n<|channel>thought\n<channel|>"])
def test_the_prompt_says_so(end):
    assert isinstance(parts_of(f"<|turn>user\nhi<turn|>\n{end}"), TurnParts)


def test_the_server_tells_them_apart(start, packages, tmp_path):
    server = start(folder=with_turns(packages(4).folder, tmp_path / "p"))

    def ask(digits, **options):
        messages = [{"role": "user", "content": echo(digits, TURNS)}]
        return client.chat.completions.create(model="qwen3", messages=messages, **options).choices[0]

    with server.client() as client:
        choice = ask("12930")
        assert (choice.message.reasoning_content, choice.message.content) == ("hm", "0")
        choice = ask("129345678", tools=TOOLS)
        (made,) = choice.message.tool_calls
        assert (made.function.arguments, choice.finish_reason) == ('{"a": 1}', "tool_calls")
        assert (choice.message.reasoning_content, choice.message.content) == ("hm", None)
