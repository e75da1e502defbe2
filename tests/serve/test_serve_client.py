"""What else the `openai` client has: its other ways to ask, and its methods for routes that are not served."""

import enum
import json
from typing import Literal, Optional

import openai
import pydantic
import pytest
from serve_live import QUESTIONS, allowed, user

from tcim_lite.llm import load_tokenizer

ASKED = {"model": "qwen3", "messages": user(QUESTIONS[0])}


class Answer(pydantic.BaseModel):
    sum: Literal[41, 42]


def test_parse_makes_the_object_of_a_schema(client):
    done = client.chat.completions.parse(**ASKED, response_format=Answer, max_tokens=150)
    assert isinstance(done.choices[0].message.parsed, Answer)
    with client.chat.completions.stream(**ASKED, response_format=Answer, max_tokens=150) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == done.choices[0].message.parsed


def test_parse_makes_the_arguments_of_a_tool(client):
    tools = [openai.pydantic_function_tool(Answer)]
    done = client.chat.completions.parse(**ASKED, tools=tools, tool_choice="required", max_tokens=400)
    (call,) = done.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Answer)
    named = {"type": "function", "function": {"name": "Answer"}}
    options = {"tools": tools, "tool_choice": named, "max_tokens": 150}
    with client.chat.completions.stream(**ASKED, **options) as stream:
        deltas = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Answer)
    assert "".join(event.arguments_delta for event in deltas) == call.function.arguments


class Unit(enum.Enum):
    one = 1
    two = 2


class Ask(pydantic.BaseModel):
    unit: Unit


class Note(pydantic.BaseModel):
    unit: Literal["note"]
    next: Optional["Note"] = None


def test_tools_have_their_own_definitions(client):
    """Schemas of pydantic keep what they use twice or name in `$defs`, with equal names in several tools."""
    tools = [openai.pydantic_function_tool(kind) for kind in (Ask, Note)]
    assert all("$ref" in str(tool) for tool in tools)
    done = client.chat.completions.parse(**ASKED, tools=tools, tool_choice="required", max_tokens=500)
    (call,) = done.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, (Ask, Note))
    unknown = {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}
    bad = [{"type": "function", "function": {"name": "f", "parameters": unknown}}]
    with pytest.raises(openai.BadRequestError, match="'/\\$defs/none' does not exist") as caught:
        client.chat.completions.create(**ASKED, tools=bad, tool_choice="required")
    assert caught.value.body["param"] == "tools"


def test_only_allowed_tools_are_called(client):
    """The choice of a list of tools is the choice among those alone."""
    tools = [openai.pydantic_function_tool(kind) for kind in (Ask, Answer)]
    done = client.chat.completions.parse(
        **ASKED, tools=tools, tool_choice=allowed("required", "Answer"), max_tokens=400
    )
    (call,) = done.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Answer)
    free = client.chat.completions.create(**ASKED, tools=tools, tool_choice=allowed("auto", "Answer"))
    alone = client.chat.completions.create(**ASKED, tools=tools[1:])
    assert free.choices[0].message == alone.choices[0].message
    assert free.usage.prompt_tokens == alone.usage.prompt_tokens


def test_a_refusal_may_be_sent_back(client):
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    said = {"role": "assistant", "content": "no"}
    answers = [
        client.chat.completions.create(model="qwen3", messages=[*ASKED["messages"], turn, *ASKED["messages"]])
        for turn in (refused, said)
    ]
    assert answers[0].usage.prompt_tokens == answers[1].usage.prompt_tokens


def test_raw_and_streamed_responses(client):
    raw = client.chat.completions.with_raw_response.create(**ASKED)
    assert raw.headers["x-request-id"] == raw.request_id
    assert raw.parse().choices[0].message.content == "12 + 30 = 42"
    with client.chat.completions.with_streaming_response.create(**ASKED, stream=True) as response:
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    assert client.completions.with_raw_response.create(model="qwen3", prompt="1 2", max_tokens=2).parse().choices


def test_options_of_a_call(client, server):
    with_options = client.with_options(timeout=30, max_retries=1)
    done = with_options.chat.completions.create(
        **ASKED, extra_headers={"X-Request-Id": "mine"}, extra_query={"unknown": "1"}, timeout=20
    )
    assert (done.choices[0].message.content, done._request_id) == ("12 + 30 = 42", "mine")
    slow = {"ignore_eos": True, "max_tokens": 2000}
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**ASKED, n=16, extra_body=slow, timeout=0.05)


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        (lambda client: client.models.delete("qwen3"), 405),
        (lambda client: client.chat.completions.list(), 405),
        (lambda client: client.chat.completions.retrieve("a"), 404),
        (lambda client: client.chat.completions.update("a", metadata={}), 404),
        (lambda client: client.chat.completions.delete("a"), 404),
        (lambda client: client.chat.completions.messages.list("a"), 404),
        (lambda client: client.responses.compact(model="qwen3", input="a"), 404),
        (lambda client: client.embeddings.create(model="qwen3", input="a"), 404),
        (lambda client: client.files.list(), 404),
        (lambda client: client.images.generate(prompt="a"), 404),
        (lambda client: client.audio.speech.create(model="qwen3", input="a", voice="alloy"), 404),
        (lambda client: client.moderations.create(input="a"), 404),
        (lambda client: client.fine_tuning.jobs.list(), 404),
        (lambda client: client.batches.list(), 404),
        (lambda client: client.vector_stores.list(), 404),
    ],
)
def test_what_is_not_served_is_an_error_that_the_client_reads(client, ask, status):
    with pytest.raises(openai.APIStatusError) as caught:
        ask(client)
    assert caught.value.status_code == status
    assert caught.value.body["type"] == ("invalid_request_error" if status == 405 else "not_found_error")
    assert caught.value.body["message"]


def test_beside_a_form_the_model_may_call_tools(client, packages):
    """As agents with a type of answers ask. The demo model knows no tools: a bias keeps it from beginning an object."""
    tokens = load_tokenizer(packages(1).tokenizer_folder).get_vocab()
    begins = {str(token): -50 for text, token in tokens.items() if text.startswith("{")}
    ends = {str(token): 100 for text, token in tokens.items() if text in ("}", "<|im_end|>")}
    tools = [openai.pydantic_function_tool(Answer)]
    done = client.chat.completions.parse(**ASKED, tools=tools, response_format=Answer, max_tokens=150).choices[0]
    assert isinstance(done.message.parsed, Answer)
    ask = {**ASKED, "tools": tools, "logit_bias": begins | ends, "max_tokens": 60}
    ask["response_format"] = {"type": "json_object"}
    done = client.chat.completions.create(**ask).choices[0]
    assert (done.finish_reason, done.message.content) == ("tool_calls", None)
    assert (done.message.tool_calls[0].function.name, done.message.tool_calls[0].function.arguments) == ("Answer", "{}")
    answer = client.chat.completions.create(**ask, tool_choice="none").choices[0].message
    assert answer.tool_calls is None
    assert json.loads(answer.content) == {}
