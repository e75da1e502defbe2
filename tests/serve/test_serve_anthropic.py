"""The `anthropic` client against a live server: messages, streams, tools, errors, and counts of tokens."""

from __future__ import annotations

import base64
import json
import re

import pytest

anthropic = pytest.importorskip("anthropic", reason="the client")

from channel_package import echo, with_channels
from serve_live import CONTEXT, QUESTIONS, user

MODEL = "qwen3"
TOOLS = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {"a": {}}}}]


def client_of(server, **options):
    options = {"api_key": "none", "max_retries": 0, "timeout": 60, **options}
    return anthropic.Anthropic(base_url=server.url, **options)


@pytest.fixture(scope="module")
def claude(server):
    with client_of(server) as made:
        yield made


def ask(claude, content, **options):
    options = {"model": MODEL, "max_tokens": 100, **options}
    return claude.messages.create(messages=[{"role": "user", "content": content}], **options)


def test_a_message_has_the_text_and_counts_of_a_chat(claude, client):
    done, chat = ask(claude, QUESTIONS[0]), client.chat.completions.create(model=MODEL, messages=user(QUESTIONS[0]))
    assert [(block.type, block.text) for block in done.content] == [("text", chat.choices[0].message.content)]
    assert (done.role, done.model, done.stop_reason, done.stop_sequence) == ("assistant", MODEL, "end_turn", None)
    assert done.id.startswith("msg_")
    assert done.usage.input_tokens + done.usage.cache_read_input_tokens == chat.usage.prompt_tokens
    assert done.usage.output_tokens == chat.usage.completion_tokens
    assert done._request_id.startswith("req_")


def test_a_system_prompt_and_blocks_are_those_of_a_chat(claude, client):
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=12345;"},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be kind."},
    ]
    blocks = [{"type": "text", "text": "What is"}, {"type": "text", "text": "12 + 30?"}]
    done = ask(claude, blocks, system=system, metadata={"user_id": "me"})
    same = [{"role": "system", "content": "Be brief.\nBe kind."}, *user("What is\n12 + 30?")]
    chat = client.chat.completions.create(model=MODEL, messages=same, max_tokens=100)
    assert done.content[0].text == chat.choices[0].message.content
    assert done.usage.input_tokens + done.usage.cache_read_input_tokens == chat.usage.prompt_tokens


def test_a_stream_is_the_same_message(claude):
    whole = ask(claude, QUESTIONS[4])
    with claude.messages.stream(model=MODEL, max_tokens=100, messages=user(QUESTIONS[4])) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        made = stream.get_final_message()
    assert (made.stop_reason, made.usage.output_tokens) == ("end_turn", whole.usage.output_tokens)
    kinds = [event.type for event in ask(claude, QUESTIONS[4], stream=True)]
    deltas = kinds.count("content_block_delta")
    assert deltas > 1
    assert kinds == [
        "message_start", "content_block_start", *["content_block_delta"] * deltas, "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip


def test_a_stream_names_its_events_and_pings(server):
    body = {"model": MODEL, "max_tokens": 5, "messages": user(QUESTIONS[0]), "stream": True}
    text = server.post("/v1/messages", json=body).text
    events = [block.split("\n") for block in text.strip().split("\n\n")]
    assert [lines[0].removeprefix("event: ") for lines in events][:3] == [
        "message_start",
        "ping",
        "content_block_start",
    ]
    for name, data in events:
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: ")


def test_how_an_answer_ended(claude):
    cut = ask(claude, QUESTIONS[0], max_tokens=3)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)
    stopped = ask(claude, QUESTIONS[0], stop_sequences=["zzz", " = "])
    assert (stopped.content[0].text, stopped.stop_reason, stopped.stop_sequence) == ("12 + 30", "stop_sequence", " = ")
    endless = {"type": "array", "items": {"enum": [7]}, "minItems": CONTEXT}
    form = {"output_config": {"format": {"type": "json_schema", "schema": endless}}}
    full = ask(claude, "ab " * 600, max_tokens=10**6, extra_body=form)
    assert full.stop_reason == "model_context_window_exceeded"
    assert full.usage.input_tokens + full.usage.cache_read_input_tokens + full.usage.output_tokens >= CONTEXT


def test_the_last_message_may_begin_the_answer(claude):
    begun = [*user(QUESTIONS[0]), {"role": "assistant", "content": "12 + 30"}]
    done = claude.messages.create(model=MODEL, max_tokens=50, messages=begun)
    assert done.content[0].text == " = 42"


def test_tokens_are_counted_before_a_message_is_made(claude):
    whole = ask(claude, QUESTIONS[1], system="Be brief.")
    counted = claude.messages.count_tokens(model=MODEL, messages=user(QUESTIONS[1]), system="Be brief.")
    assert counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    turns = [*user(QUESTIONS[1]), {"role": "assistant", "content": [{"type": "text", "text": "5"}]}, *user("And?")]
    more = claude.messages.count_tokens(model=MODEL, messages=turns, system="Be brief.", tools=TOOLS)
    assert more.input_tokens > counted.input_tokens


def test_models_are_listed_for_both_clients(claude, client):
    (model,) = claude.models.list()
    assert (model.id, model.type, model.display_name) == (MODEL, "model", MODEL)
    assert claude.models.retrieve(MODEL).id == MODEL
    assert [model.id for model in client.models.list()] == [MODEL]


@pytest.fixture(scope="module")
def channels(start, packages, tmp_path_factory):
    folder = with_channels(packages(4).folder, tmp_path_factory.mktemp("claude") / "p")
    with client_of(start(folder=folder)) as made:
        yield made


def test_thoughts_and_calls_are_blocks(channels):
    done = ask(channels, echo("12394163780"), tools=TOOLS)
    thought, call = done.content
    assert (thought.type, thought.thinking) == ("thinking", "hm")
    assert (call.type, call.name, call.input, done.stop_reason) == ("tool_use", "add", {"a": 1}, "tool_use")
    assert call.id.startswith("toolu_")
    with channels.messages.stream(
        model=MODEL, max_tokens=100, tools=TOOLS, messages=user(echo("12394163780"))
    ) as stream:
        made = stream.get_final_message()
    assert [block.type for block in made.content] == ["thinking", "tool_use"]
    assert (made.content[0].thinking, made.content[1].input) == ("hm", {"a": 1})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": echo("539")}]}
    told = [
        *user(echo("12394163780")),
        {"role": "assistant", "content": [block.model_dump() for block in done.content]},
        {"role": "user", "content": [result]},
    ]
    after = channels.messages.create(model=MODEL, max_tokens=20, messages=told, tools=TOOLS)
    assert after.content


@pytest.mark.parametrize("choice", [{"type": "tool", "name": "add"}, {"type": "any"}])
def test_a_call_that_is_asked_for_is_a_tool_use(claude, choice):
    tools = [{"name": "add", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}]
    done = ask(claude, QUESTIONS[0], tools=tools, tool_choice=choice, max_tokens=200)
    assert [(block.type, block.name, block.input) for block in done.content] == [("tool_use", "add", {})]
    assert done.stop_reason == "tool_use"


def test_a_schema_is_followed(claude):
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    form = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    done = ask(claude, QUESTIONS[0], extra_body=form, max_tokens=200)
    assert json.loads(done.content[0].text) == {"n": 7}


def test_errors_are_those_of_the_client(claude, start):
    with pytest.raises(anthropic.NotFoundError, match="'claude-9' is not served here; this is 'qwen3'") as found:
        ask(claude, "hi", model="claude-9")
    assert found.value.body["error"]["type"] == "not_found_error"
    assert found.value.body["type"] == "error"
    with pytest.raises(anthropic.BadRequestError, match="tokens, the context holds 2048"):
        ask(claude, "ab " * 5000)
    keyed = start("--api-key", "sesame")
    with client_of(keyed, api_key="wrong") as wrong, pytest.raises(anthropic.AuthenticationError, match="key"):
        ask(wrong, "hi")
    with client_of(keyed, api_key="sesame") as right:
        assert ask(right, QUESTIONS[0]).content[0].text == "12 + 30 = 42"
    for headers, status in (({"x-api-key": "sesame"}, 200), ({"x-api-key": "sesam"}, 401)):
        assert keyed.get("/v1/models", headers=headers).status_code == status


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
TOOL = {"name": "f", "input_schema": {}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens=-1: expected at least 1"),
        ({"messages": []}, "messages: expected at least one"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "expected user, assistant, system"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": user([IMAGE])}, r"messages\[0\], image 1: .*no vision tower"),
        ({"system": "s", "messages": user([IMAGE])}, r"messages\[0\], image 1: .*no vision tower"),
        ({"messages": user([{"type": "image"}])}, r"messages\[0\].content\[0\]: source is missing"),
        ({"messages": user([{"type": "image", "source": {"type": "file"}}])}, "a source of type 'file'"),
        ({"messages": user([{"type": "video"}])}, "a block of type 'video'"),
        ({"messages": user([RESULT, {"type": "video"}])}, r"messages\[0\].content\[1\]: a block of type 'video'"),
        ({"messages": [{"role": "system", "content": [{"type": "text"}]}]}, r"messages\[0\].content\[0\]: text is"),
        ({"system": [{"type": "text"}]}, r"system\[0\]: text is missing"),
        ({"messages": user([{"type": "text"}])}, "text is missing"),
        ({"messages": user([{"type": "document", "source": {"type": "base64"}}])}, "nothing here reads files"),
        ({"messages": user([{"type": "tool_result", "content": "x"}])}, "tool_use_id is missing"),
        ({"messages": user([{"type": "tool_result", "tool_use_id": "a", "content": 5}])}, r"content\[0\].content"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]}, "name is missing"),
        ({"messages": [*user("hi"), {"role": "assistant", "content": []}]}, "the last message"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "a tool of type 'bash_20250124'"),
        ({"tools": [{"name": "f"}]}, "input_schema is missing"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "name is missing"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "no tool is named 'g'"),
        ({"tool_choice": {"type": "any"}}, "tool"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 5}, "top_p"),
        ({"stop_sequences": [""]}, "stop"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"max_token": 5}, "did you mean max_tokens"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"uniqueItems": True}}}}, "uniqueItems|schema"),
    ],
)
def test_what_cannot_be_done_is_refused_in_anthropics_form(server, change, message):
    body = {"model": MODEL, "max_tokens": 5, "messages": user("hi"), **change}
    body = {name: value for name, value in body.items() if value is not None}
    done = server.post("/v1/messages", json=body)
    assert done.status_code == 400, done.text
    assert done.json()["type"] == "error"
    assert done.json()["error"]["type"] == "invalid_request_error"
    assert re.search(message, done.json()["error"]["message"]), done.text


def test_bodies_that_are_no_messages(server):
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        for content in (b"", b"[]", b"{", b'{"messages": "x"}', base64.b64encode(b"x" * 99)):
            done = server.post(path, content=content, headers={"Content-Type": "application/json"})
            assert (done.status_code, done.json()["type"]) == (400, "error")
        assert server.get(path).json()["error"]["type"] == "invalid_request_error"
