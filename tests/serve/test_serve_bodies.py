"""Bodies of requests: what is read, what is refused, and by which name."""

import json

import pytest

from tcim_lite.llm.engine import StructuredOutput
from tcim_lite.llm.generation_defaults import GenerationDefaults
from tcim_lite.serve.errors import ApiError
from tcim_lite.serve.protocol import ChatRequest, CompletionRequest
from tcim_lite.serve.reading import read
from tcim_lite.serve.sampling import chat_params, completion_params


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b'{"messages": [], "temperature": NaN}', "is not JSON"),
        (b'{"messages": [], "temperature": 1e999}', "is not JSON"),
        (b'{"messages": "\xff"}', "is not JSON"),
        (b'{"messages": "\\ud800"}', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is a list"),
        (b"null", "is a NoneType"),
        (b"{}", "missing required field `messages`"),
        (
            b'{"messages": [{"role": "nobody"}]}',
            r"Invalid enum value 'nobody' .*; expected system, developer, user, assistant, tool",
        ),
        (b'{"messages": [], "tool_choice": "any"}', "'any' .*; expected none, auto, required"),
        (
            b'{"messages": [], "tools": [{"type": "custom", "function": {"name": "f"}}]}',
            "'custom' .*; expected function",
        ),
        (b'{"messages": [], "response_format": {"type": "xml"}}', "'xml' .*; expected text, json_object, json_schema"),
        (b'{"messages": [], "n": 1.5}', "Expected `int | null`, got `float`"),
        (b'{"messages": [], "temprature": 1}', "argument: temprature; did you mean temperature?"),
        (b'{"messages": [], "xyz": 1}', "argument: xyz$"),
        (b'{"messages": [], "prompt": "a"}', "prompt: use messages, or /v1/completions"),
        (b'{"messages": [], "enable_thinking": false}', "enable_thinking: use chat_template_kwargs"),
        (b'{"messages": [], "web_search_options": {}}', "there is no web search"),
        (b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', "half of a surrogate pair"),
        (b'{"messages": [], "stream_options": {"include_usge": true}}', "unknown field `include_usge`"),
        (b'{"messages": [], "response_format": {"type": "text", "strict": true}}', "unknown field `strict`"),
        (b'{"messages": [], "structured_outputs": {"ebnf": "a"}}', "unknown field `ebnf`"),
        (b'{"messages": [], "skip_special_tokens": false}', "skip_special_tokens: not supported; .* or send True"),
        (b'{"messages": [], "use_beam_search": 0}', "use_beam_search: not supported; .* or send False"),
        (b'{"messages": [], "prompt_logprobs": 1}', "prompt_logprobs: not supported; leave it out$"),
        (b'{"messages": [], "moderation": {"model": "m"}}', "moderation: nothing is moderated here"),
        (b'{"messages": [], "repeat_penalty": 1.1}', "repeat_penalty: use repetition_penalty"),
    ],
)
def test_a_body_that_cannot_be_read_is_a_400(body, message):
    with pytest.raises(ApiError, match=message.replace("|", r"\|")) as caught:
        read(ChatRequest, body)
    assert caught.value.status == 400


def test_fields_of_openai_that_change_nothing_are_taken():
    body = {"messages": [], "store": True, "metadata": {"a": "b"}, "user": "me", "modalities": ["text"], "seed": 2**70}
    assert read(ChatRequest, json.dumps(body).encode()).seed == 2**70


def test_defaults_of_other_servers_are_taken():
    # As clients of vLLM and llama.cpp send them without being asked.
    body = {"skip_special_tokens": True, "spaces_between_special_tokens": False, "include_stop_str_in_output": False}
    body |= {"bad_words": [], "allowed_token_ids": None, "length_penalty": 1.0, "use_beam_search": False, "priority": 0}
    body |= {"return_token_ids": False, "prompt_logprobs": None, "cache_prompt": True, "grammar": "", "model": ""}
    body |= {"id_slot": -1, "n_keep": 0, "timings_per_token": False, "dry_multiplier": 0.0, "dry_base": 1.75}
    chat = {"messages": [], "add_generation_prompt": True, "continue_final_message": False, "echo": False}
    assert read(ChatRequest, json.dumps({**body, **chat, "best_of": None}).encode()).messages == []
    text = {"prompt": "a", "add_special_tokens": True, "messages": None}
    assert read(CompletionRequest, json.dumps({**body, **text}).encode()).prompt == "a"


def test_a_whole_number_may_be_written_with_a_point():
    body = b'{"prompt": "a", "max_tokens": 5.0, "seed": 1e3, "top_p": 1.0, "temperature": 1}'
    request = read(CompletionRequest, body)
    assert (request.max_tokens, request.seed, request.top_p, request.temperature) == (5, 1000, 1.0, 1.0)
    assert isinstance(request.max_tokens, int)


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": {"type": "array"}}, {"type": "array"}),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array"}}}, {"type": "array"}),
    ],
)
def test_forms_of_a_response_format(wanted, schema):
    body = json.dumps({"messages": [], "response_format": wanted}).encode()
    assert chat_params(read(ChatRequest, body), GenerationDefaults()).structured == StructuredOutput(json=schema)


@pytest.mark.parametrize(
    "form",
    [
        {"response_format": {"type": "json_schema", "schema": {"type": "array"}}},
        {"response_format": {"type": "json_object", "json_schema": {"name": "a"}}},
        {"structured_outputs": {"grammar": "root ::= a"}},
        {"structured_outputs": {"json": {}, "whitespace_pattern": " "}},
        {"structured_outputs": {"json_object": False}},
    ],
)
def test_a_form_that_cannot_be_held_is_refused(form):
    with pytest.raises(ApiError) as caught:
        chat_params(read(ChatRequest, json.dumps({"messages": [], **form}).encode()), GenerationDefaults())
    assert caught.value.status == 400


def test_any_object_may_be_asked_for_as_of_vllm():
    body = b'{"prompt": "a", "structured_outputs": {"json_object": true, "regex": null, "disable_fallback": true}}'
    found = completion_params(read(CompletionRequest, body), GenerationDefaults()).structured
    assert found == StructuredOutput(json={"type": "object"})
