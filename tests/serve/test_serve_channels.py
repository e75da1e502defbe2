"""Replies in channels, as gpt-oss writes them: reasoning, calls and content, whole and as streams."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from channel_package import echo, with_channels
from test_serve_parts import call, every_way_to_cut, joined

from tcim_lite.llm.engine import SamplingParams, StructuredOutput, Tagged
from tcim_lite.serve.channels import BEGIN_ANSWER, BEGIN_REPLY, END_REPLY, ChannelParts
from tcim_lite.serve.chat import params_for
from tcim_lite.serve.reply_parts import Parts

THOUGHT = "<|channel|>analysis<|message|>hm<|end|>"
NEXT = "<|start|>assistant"
ANSWER = "<|channel|>final<|message|>42"
CALL = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>'
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (THOUGHT + NEXT + ANSWER + "<|return|>", Parts("hm", "42")),
        (THOUGHT + NEXT + ANSWER, Parts("hm", "42")),
        (THOUGHT + NEXT + THOUGHT + NEXT + ANSWER, Parts("hm\nhm", "42")),
        (THOUGHT + NEXT + CALL + ANSWER, Parts("hm", calls=[call()])),
        (CALL[: -len("1}<|call|>")], Parts(calls=[call('{"a": ')])),
        # The receiver may come before the channel.
        (' to=functions.add<|channel|>commentary json<|message|>{"a": 1}', Parts(calls=[call()])),
        ("<|channel|>commentary<|message|>So:<|end|>" + NEXT + CALL, Parts(content="So:", calls=[call()])),
        ("<|channel|>commentary<|message|>So:<|end|>" + NEXT + ANSWER, Parts(content="So:\n42")),
        (CALL.replace("add", "rm"), Parts(content='{"a": 1}')),
        ("<|channel|>analysis to=python<|message|>1<|call|>", Parts("1")),
        ("<|channel|>final<|message|>a < b <| c <|en", Parts(content="a < b <| c <|en")),
        ("<|channel|>ana", Parts()),
        ("42 <b>", Parts(content="42 <b>")),
        ("So:<|end|>" + NEXT + ANSWER, Parts(content="So:\n42")),
        ("<", Parts(content="<")),
        ("", Parts()),
    ],
)
def test_a_reply_is_split_the_same_way_wherever_its_pieces_end(text, wanted):
    for pieces in every_way_to_cut(text) if text else [[""]]:
        assert joined(ChannelParts(BEGIN_REPLY, frozenset({"add"})), pieces) == wanted, pieces


def test_without_tools_a_call_is_content():
    assert joined(ChannelParts(BEGIN_REPLY), [CALL]) == Parts(content='{"a": 1}')


def test_a_reply_that_begins_in_the_answer_is_content():
    assert joined(ChannelParts(BEGIN_ANSWER), ["<b", ">42"]) == Parts(content="<b>42")


def test_a_form_has_no_calls_in_another_notation():
    """A grammar that allows `<tool_call>` would let the model write it where calls are messages."""
    vocabulary = SimpleNamespace(token_id={END_REPLY[0]: 7}.get)
    form = StructuredOutput(json={}, tagged=Tagged(begin="<tool_call>", json={}, end="</tool_call>"))
    given = SamplingParams(structured=form, stop_token_ids={3})
    made = params_for(BEGIN_ANSWER, given, vocabulary)
    assert (made.structured, made.stop_token_ids, made.skip_special_tokens) == (
        StructuredOutput(json={}),
        {3, 7},
        False,
    )
    assert params_for("<|im_start|>assistant\n", given, vocabulary) == given


@pytest.fixture(scope="module")
def folder(packages, tmp_path_factory):
    return with_channels(packages(4).folder, tmp_path_factory.mktemp("channels") / "p")


@pytest.fixture(scope="module")
def channels(start, folder):
    with start(folder=folder).client() as client:
        yield client


def ask(client, digits, **options):
    messages = [{"role": "user", "content": echo(digits)}]
    return client.chat.completions.create(model="qwen3", messages=messages, **options)


def test_reasoning_is_apart_from_the_answer(channels):
    choice = ask(channels, "12394153970").choices[0]
    assert (choice.message.reasoning_content, choice.message.content, choice.finish_reason) == (
        "hm",
        'hm{"a": 1}0',
        "stop",
    )
    chunks = [chunk.choices[0].delta for chunk in ask(channels, "12394153970", stream=True)]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in chunks) == "hm"
    assert "".join(delta.content or "" for delta in chunks) == 'hm{"a": 1}0'


def test_a_call_is_a_call_and_ends_the_reply(channels):
    choice = ask(channels, "12394163780", tools=TOOLS).choices[0]
    (made,) = choice.message.tool_calls
    assert (made.function.name, made.function.arguments) == ("add", '{"a": 1}')
    assert (choice.message.reasoning_content, choice.message.content) == ("hm", None)
    assert choice.finish_reason == "tool_calls"  # by <|call|>, which is no end token of this package
    parts = [
        part
        for chunk in ask(channels, "16378", tools=TOOLS, stream=True)
        for part in chunk.choices[0].delta.tool_calls or ()
    ]
    assert parts[0].function.name == "add"
    assert "".join(part.function.arguments for part in parts) == '{"a": 1}'


def test_responses_have_the_same_items(channels):
    made = channels.responses.create(
        model="qwen3", input=echo("12394163780"), tools=[{"type": "function", **TOOLS[0]["function"], "strict": False}]
    )
    assert [item.type for item in made.output] == ["reasoning", "function_call"]
    assert made.output[1].arguments == '{"a": 1}'


def test_a_grammar_holds_for_the_answer(channels):
    done = ask(channels, "0", extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert done.choices[0].message.content in ("yes", "no")
    plain = ask(channels, "0").usage.prompt_tokens
    assert done.usage.prompt_tokens == plain + 3  # <|channel|>final<|message|>
    named = {"type": "function", "function": {"name": "add"}}
    tools = [{"type": "function", "function": {"name": "add"}}]
    (forced,) = ask(channels, "0", tools=tools, tool_choice=named, max_tokens=50).choices[0].message.tool_calls
    assert json.loads(forced.function.arguments) == {}


def test_completions_have_no_tags(channels):
    prompt = f"<|start|>userant{echo('1539')}<|im_end|>ant<|start|>assistant"
    assert channels.completions.create(model="qwen3", prompt=prompt).choices[0].text == "finalhm"


def test_the_commands_know_channels(folder):
    run = {"capture_output": True, "text": True, "timeout": 60}
    command = [sys.executable, "-P", "-m", "tcim_lite"]
    done = subprocess.run([*command, "chat", str(folder)], input=echo("1239415390") + "\n", **run)
    assert "(thinks) hm\n(answers) hm0\n" in done.stdout
    arguments = ["--chat", "--prompt", echo("1539"), "--no-show-stats"]
    done = subprocess.run([*command, "generate", str(folder), *arguments], **run)
    assert done.stdout == "<|channel|>final<|message|>hm\n"
    done = subprocess.run([*command, "generate", str(folder), *arguments, "--choice", "yes"], **run)
    assert done.stdout == "yes\n"
