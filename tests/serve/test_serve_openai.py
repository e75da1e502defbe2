"""The `openai` client against a live server: methods, streams, errors, retries."""

import json
import threading

import openai
import pytest
from serve_live import CONTEXT, ENDLESS, QUESTIONS, allowed, user

from tcim_lite.llm import Sampler

MODEL = "qwen3"


def chat(client, text, **options):
    return client.chat.completions.create(model=MODEL, messages=user(text), **options)


def test_models(client):
    (model,) = client.models.list()
    assert model.id == MODEL
    assert model.max_model_len == CONTEXT
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match="'gpt-9' is not served here; this is 'qwen3'"):
        client.models.retrieve("gpt-9")


def test_a_chat_answers_as_generate_does(client, alone):
    done = chat(client, QUESTIONS[0])
    tokens, text = alone(QUESTIONS[0])
    assert done.choices[0].message.content == text == "12 + 30 = 42"
    assert done.choices[0].finish_reason == "stop"
    assert done.usage.completion_tokens == len(tokens) + 1
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


def test_a_stream_is_the_same_answer_in_pieces(client, alone):
    chunks = list(chat(client, QUESTIONS[4], stream=True, stream_options={"include_usage": True}))
    *pieces, last = chunks
    assert len({chunk.id for chunk in chunks}) == 1
    assert pieces[0].choices[0].delta.role == "assistant"
    tokens, text = alone(QUESTIONS[4])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == text
    assert [chunk.choices[0].finish_reason for chunk in pieces if chunk.choices[0].finish_reason] == ["stop"]
    assert (last.choices, last.usage.completion_tokens) == ([], len(tokens) + 1)
    assert all(chunk.usage is None for chunk in pieces)


def test_the_streaming_helper_of_the_client_builds_the_whole_answer(client, alone):
    with client.chat.completions.stream(model=MODEL, messages=user(QUESTIONS[1])) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        assert stream.get_final_completion().choices[0].message.content == text == alone(QUESTIONS[1])[1]


def test_the_asynchronous_client(server, alone):
    import asyncio

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            made = await asyncio.gather(*(chat(client, text) for text in QUESTIONS))
            return [done.choices[0].message.content for done in made]

    assert asyncio.run(ask()) == [alone(text)[1] for text in QUESTIONS]


def test_n_answers_with_seeds_are_those_of_the_sampler(client, alone):
    done = chat(client, QUESTIONS[2], n=3, temperature=8, seed=5, top_p=1, extra_body={"top_k": 0}, max_tokens=12)
    wanted = [alone(QUESTIONS[2], 12, Sampler(8, 0, 1.0, 5 + i))[1] for i in range(3)]
    assert [choice.message.content for choice in done.choices] == wanted
    assert len(set(wanted)) > 1
    assert [choice.index for choice in done.choices] == [0, 1, 2]


def test_stop_strings_end_an_answer_and_are_not_in_it(client):
    done = chat(client, QUESTIONS[0], stop=[" = ", "zzz"])
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("12 + 30", "stop")
    text = "".join(
        chunk.choices[0].delta.content or "" for chunk in chat(client, QUESTIONS[0], stop="+ 3", stream=True)
    )
    assert text == "12 "


def test_logprobs_of_a_chat(client):
    done = chat(client, QUESTIONS[0], logprobs=True, top_logprobs=3, max_tokens=4)
    content = done.choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == done.choices[0].message.content
    assert all(bytes(entry.bytes).decode() == entry.token for entry in content)
    assert all(
        len(entry.top_logprobs) == 3 and entry.logprob == entry.top_logprobs[0].logprob <= 0 for entry in content
    )
    streamed = chat(client, QUESTIONS[0], logprobs=True, top_logprobs=3, max_tokens=4, stream=True)
    assert [e for chunk in streamed if chunk.choices[0].logprobs for e in chunk.choices[0].logprobs.content] == content


def test_logit_bias_forbids_a_token(client, server):
    (token,) = server.post("/tokenize", json={"prompt": "1"}).json()["tokens"]
    assert not chat(client, QUESTIONS[0], logit_bias={str(token): -100}).choices[0].message.content.startswith("1")


def test_max_tokens_and_the_context_end_an_answer_by_length(client):
    done = chat(client, QUESTIONS[0], max_completion_tokens=3)
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("12 ", "length")
    done = chat(client, QUESTIONS[0], extra_body={"ignore_eos": True})
    assert done.choices[0].finish_reason == "length"
    assert done.usage.total_tokens == CONTEXT + 1  # the last token needs no row


SCHEMA = {
    "type": "object",
    "properties": {"sum": {"enum": [41, 42]}},
    "required": ["sum"],
    "additionalProperties": False,
}


def test_a_json_schema_holds(client):
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    done = chat(client, QUESTIONS[0], response_format=wanted, max_tokens=150)
    assert isinstance(json.loads(done.choices[0].message.content)["sum"], int)
    choice = chat(client, QUESTIONS[0], extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert choice.choices[0].message.content in ("yes", "no")


TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}]
CALL = r'<tool_call>\n\{"name": "add", "arguments": \{"sum": 42\}\}\n</tool_call>'


def test_calls_of_tools(client):
    named = {"type": "function", "function": {"name": "add"}}
    done = chat(client, QUESTIONS[0], tools=TOOLS, tool_choice=named, max_tokens=150).choices[0]
    assert (done.finish_reason, done.message.tool_calls[0].function.name) == ("stop", "add")
    assert isinstance(json.loads(done.message.tool_calls[0].function.arguments)["sum"], int)
    done = chat(client, QUESTIONS[0], tools=TOOLS, tool_choice="required", max_tokens=450).choices[0]
    assert (done.finish_reason, done.message.tool_calls[0].function.name) == ("tool_calls", "add")
    # The demo model knows no tools; a grammar makes it write what Qwen3 writes.
    guide = {"structured_outputs": {"regex": f"Wait! {CALL}"}}
    done = chat(client, QUESTIONS[0], tools=TOOLS, extra_body=guide, max_tokens=120).choices[0]
    assert (done.finish_reason, done.message.content) == ("tool_calls", "Wait! ")
    assert json.loads(done.message.tool_calls[0].function.arguments) == {"sum": 42}


def test_a_stream_passes_the_arguments_of_calls_on_as_they_are_written(client):
    guide = {"structured_outputs": {"regex": f"Wait! {CALL}\\n{CALL}"}}
    options = {"tools": TOOLS, "extra_body": guide, "max_tokens": 240}
    chunks = list(chat(client, QUESTIONS[0], stream=True, **options))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Wait! "
    parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ()]
    for index in (0, 1):
        first, *others = [part for part in parts if part.index == index]
        assert first.id.startswith("call_")
        assert (first.type, first.function.name) == ("function", "add")
        assert len(others) > 2
        assert all(part.id is None and part.type is None and part.function.name is None for part in others)
        assert "".join(part.function.arguments for part in (first, *others)) == '{"sum": 42}'
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    one = chat(client, QUESTIONS[0], stream=True, parallel_tool_calls=False, **options)
    assert {part.index for chunk in one for part in chunk.choices[0].delta.tool_calls or ()} == {0}
    with client.chat.completions.stream(model=MODEL, messages=user(QUESTIONS[0]), **options) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        made = stream.get_final_completion().choices[0].message.tool_calls
    assert [event.arguments for event in done] == ['{"sum": 42}'] * 2
    assert [call.function.arguments for call in made] == ['{"sum": 42}'] * 2
    assert len({call.id for call in made}) == 2


@pytest.mark.parametrize(
    ("choice", "reason"), [("required", "tool_calls"), ({"type": "function", "function": {"name": "add"}}, "stop")]
)
def test_a_stream_of_a_call_that_has_to_be_made_is_that_call_in_pieces(client, choice, reason):
    options = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 450}
    (whole,) = chat(client, QUESTIONS[0], **options).choices[0].message.tool_calls
    chunks = list(chat(client, QUESTIONS[0], stream=True, **options))
    first, *others = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ()]
    assert (first.index, first.function.name, len(others) > 2) == (0, "add", True)
    assert "".join(part.function.arguments for part in (first, *others)) == whole.function.arguments
    assert not any(chunk.choices[0].delta.content for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == reason
    cut = chat(client, QUESTIONS[0], **{**options, "max_tokens": 25 if choice == "required" else 3}).choices[0]
    assert cut.finish_reason == "length"


@pytest.mark.parametrize("function", [{}, {"parameters": {}}, {"parameters": {"type": "object", "properties": {}}}])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "now"}}])
def test_a_tool_without_parameters_is_called_without_arguments(client, choice, function):
    tools = [{"type": "function", "function": {"name": "now", **function}}]
    done = chat(client, QUESTIONS[0], tools=tools, tool_choice=choice, max_tokens=200).choices[0]
    assert json.loads(done.message.tool_calls[0].function.arguments) == {}


def test_reasoning_is_apart_from_the_answer(client):
    guide = {"structured_outputs": {"regex": "<think>\nhm\n</think>\n\n42"}}
    message = chat(client, QUESTIONS[0], extra_body=guide, max_tokens=150).choices[0].message
    assert (message.reasoning_content, message.content) == ("hm\n", "42")
    deltas = [chunk.choices[0].delta for chunk in chat(client, QUESTIONS[0], extra_body=guide, stream=True)]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "hm\n"
    assert "".join(delta.content or "" for delta in deltas) == "42"


def test_completions_take_prompts_in_every_form(client, server):
    texts = ["1 2 3", "a b"]
    ids = [server.post("/tokenize", json={"prompt": text}).json()["tokens"] for text in texts]
    made = client.completions.create(model=MODEL, prompt=texts, n=2, max_tokens=5)
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    assert made.choices[0].text == made.choices[1].text
    assert made.usage.prompt_tokens == sum(map(len, ids))
    assert made.usage.completion_tokens == 20
    by_ids = client.completions.create(model=MODEL, prompt=ids, n=2, max_tokens=5)
    assert [choice.text for choice in by_ids.choices] == [choice.text for choice in made.choices]
    one = client.completions.create(model=MODEL, prompt=ids[1], max_tokens=5, echo=True)
    assert one.choices[0].text == "a b" + made.choices[2].text
    pieces = client.completions.create(model=MODEL, prompt=texts[0], max_tokens=5, stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces) == made.choices[0].text


def test_logprobs_of_a_completion(client):
    choice = client.completions.create(model=MODEL, prompt="1 2 3", max_tokens=4, logprobs=2).choices[0]
    found = choice.logprobs
    assert "".join(found.tokens) == choice.text
    assert found.text_offset == [sum(map(len, found.tokens[:i])) for i in range(4)]
    assert [max(top.values()) for top in found.top_logprobs] == found.token_logprobs


def test_echoed_prompts_have_logprobs_where_prefill_gives_all_logits(client, start):
    asked = {"model": MODEL, "prompt": "1 2 3", "max_tokens": 2, "echo": True, "logprobs": 2}
    with pytest.raises(openai.BadRequestError, match="--all-logits"):
        client.completions.create(**asked)
    with start(all_logits=True).client() as every:
        choice = every.completions.create(**asked).choices[0]
        pieces = [chunk.choices[0] for chunk in every.completions.create(**asked, stream=True) if chunk.choices]
        answer = every.completions.create(**{**asked, "echo": False}).choices[0]
    found = choice.logprobs
    assert "".join(found.tokens) == choice.text == "1 2 3" + answer.text
    assert found.text_offset == [sum(map(len, found.tokens[:i])) for i in range(len(found.tokens))]
    assert (found.token_logprobs[0], found.top_logprobs[0]) == (None, None)
    assert found.token_logprobs[-2:] == answer.logprobs.token_logprobs
    assert all(
        value <= max(top.values()) for value, top in zip(found.token_logprobs[1:], found.top_logprobs[1:], strict=True)
    )
    assert "".join(piece.text for piece in pieces) == choice.text
    assert [
        value for piece in pieces if piece.logprobs for value in piece.logprobs.token_logprobs
    ] == found.token_logprobs


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"logit_bias": {"one": 1}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"max_completion_tokens": -2}, "max_completion_tokens"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"extra_body": {"max_token": 3}}, "max_token"),
        ({"extra_body": {"audio": {"voice": "x"}}}, "audio"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tool_choice": allowed("auto", "add")}, "tool_choice"),
    ],
)
def test_a_bad_value_is_a_400_that_names_it(client, options, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, "hi", **options)
    assert caught.value.body["param"] == param
    assert caught.value.body["type"] == "invalid_request_error"
    assert param.partition(".")[0] in caught.value.body["message"]


def test_a_prompt_beyond_the_context_is_a_400_that_names_the_limit(client):
    with pytest.raises(openai.BadRequestError, match=f"the context holds {CONTEXT}") as caught:
        chat(client, "1 " * CONTEXT)
    assert caught.value.code == "context_length_exceeded"


def test_what_is_not_served_is_refused_with_the_reason(client):
    with pytest.raises(openai.NotFoundError, match="give logits, no embeddings; serve an embedding model"):
        client.embeddings.create(model=MODEL, input="a")


def test_the_client_tries_again_when_the_queue_is_full(start, alone, tmp_path):
    rules = tmp_path / "slow.toml"  # so that the answer held does not reach its end meanwhile
    rules.write_text('[[fault]]\nkind = "slow"\ndelay_s = 0.01\n')
    server = start("--max-queue", "0", batch=1, env={"TCIM_LITE_FAULTS": str(rules)})
    with server.client() as first, server.client(max_retries=8) as second:
        held = chat(first, QUESTIONS[0], stream=True, extra_body=ENDLESS)
        next(held)
        with pytest.raises(openai.RateLimitError) as caught:
            chat(first, QUESTIONS[0])
        assert caught.value.response.headers["retry-after"] == "1"
        assert "a queue of 0" in str(caught.value)
        threading.Timer(0.5, held.close).start()
        assert chat(second, QUESTIONS[0]).choices[0].message.content == alone(QUESTIONS[0])[1]
