"""Bodies of /v1/responses: the chat that they become, and what is refused, by the name that the client knows."""

import json

import msgspec
import pytest

from tcim_lite.llm.generation_defaults import GenerationDefaults
from tcim_lite.serve.errors import ApiError
from tcim_lite.serve.reading import read
from tcim_lite.serve.responses_input import chat_request, named_as_asked
from tcim_lite.serve.responses_protocol import ResponsesRequest
from tcim_lite.serve.sampling import chat_params, with_allowed_tools

CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
TOOL = {"type": "function", "name": "f"}


def become(**body):
    """The chat of a body, after all that is checked before there is a prompt."""
    request = read(ResponsesRequest, json.dumps({"input": "hi", **body}).encode())
    with named_as_asked():
        chat = with_allowed_tools(chat_request(request))
        chat_params(chat, GenerationDefaults())
        return chat


def said(text: str) -> dict:
    return {"role": "assistant", "content": text}


def thought(text: str) -> dict:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


@pytest.mark.parametrize(
    ("items", "turns"),
    [
        ([said("a"), said("b")], [("a", None, 0), ("b", None, 0)]),
        ([thought("t"), said("a"), CALL, CALL], [("a", "t", 2)]),
        ([CALL, said("a"), CALL], [("a", None, 2)]),
        ([said("a"), CALL, said("b")], [("ab", None, 1)]),
        ([thought("t"), thought("u"), CALL], [("", "tu", 1)]),
        ([said("a"), thought("t"), said("b")], [("a", None, 0), ("b", "t", 0)]),
        ([thought(""), said("a")], [("a", None, 0)]),
        ([{"type": "reasoning", "encrypted_content": "x"}, said("a")], [("a", None, 0)]),
        ([CALL, {"role": "user", "content": "hi"}, CALL], [("", None, 1), ("", None, 1)]),
    ],
)
def test_items_of_one_turn_become_one_message(items, turns):
    made = [message for message in become(input=items).messages if message.role == "assistant"]
    assert [(turn.content, turn.reasoning_content, len(turn.tool_calls or ())) for turn in made] == turns


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"background": True}, "background", "background: an answer is made while its client waits"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation as input"),
        ({"conversation": "conv_1"}, "conversation", "send the whole conversation as input"),
        ({"prompt": {"id": "p"}}, "prompt", "use instructions and input"),
        ({"truncation": "middle"}, "truncation", "expected auto, disabled"),
        ({"max_tokens": 3}, "max_tokens", "use max_output_tokens"),
        ({"messages": []}, "messages", "use input, or /v1/chat/completions"),
        ({"n": 2}, "n", "one answer is made"),
        ({"response_format": {"type": "text"}}, "response_format", "use text, {'format'"),
        ({"maxx_output_tokens": 1}, "maxx_output_tokens", "did you mean max_output_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens", "^max_output_tokens=0: expected at least 1"),
        ({"top_logprobs": 2}, "top_logprobs", "add 'message.output_text.logprobs' to include"),
        (
            {"top_logprobs": 21, "include": ["message.output_text.logprobs"]},
            "top_logprobs",
            "^top_logprobs=21",
        ),
        ({"include": ["all"]}, "include[0]", "expected message.output_text.logprobs, "),
        ({"tools": [{"type": "web_search"}]}, "tools", r"tools\[0\]: a tool of type 'web_search'; .* leave it out"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "name is missing; it stands beside"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type", "expected function, allowed_tools"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name", "name is missing"),
        ({"tool_choice": {"type": "function", "name": "g"}, "tools": [TOOL]}, "tool_choice", "no tool is named 'g'"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice", "needs mode and tools"),
        ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "needs name and schema"),
        ({"text": {"format": {"type": "json_object", "schema": {}}}}, "text.format.type", "needs the type json_schema"),
        ({"text": {"formt": {}}}, "text", "unknown field `formt`"),
        (
            {"text": {"format": {"type": "json_object"}}, "structured_outputs": {"choice": ["a"]}},
            None,
            "^structured_outputs, text.format and a tool_choice",
        ),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options", "only with stream true"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role", "expected user, assistant, system"),
        ({"input": [{"content": "a"}]}, "input", r"input\[0\]: role is missing"),
        ({"input": [{"role": "user"}]}, "input", r"input\[0\]: content is missing"),
        ({"input": [{**CALL, "call_id": None}]}, "input", r"input\[0\]: call_id is missing"),
        ({"input": [{"type": "function_call_output", "call_id": "a"}]}, "input", r"input\[0\]: output is missing"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input", "nothing is stored: send the item itself"),
        ({"input": [{"type": "web_search_call"}]}, "input", "an item of type 'web_search_call'; expected message"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
            "input",
            r"input\[0\]\.content\[0\]: a part of type 'input_file'; expected input_text, or input_image or ",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input",
            r"input\[0\]\.content\[0\]: text is missing",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(body, param, message):
    with pytest.raises(ApiError, match=message) as caught:
        become(**body)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_what_changes_nothing_is_taken():
    taken = {"store": True, "background": False, "previous_response_id": None, "truncation": "disabled", "n": 1}
    taken |= {"service_tier": "auto", "prompt_cache_key": "a", "safety_identifier": "b", "max_tool_calls": 3}
    taken |= {
        "include": ["reasoning.encrypted_content"],
        "text": {"verbosity": "low"},
        "reasoning": {"summary": "auto"},
    }
    assert msgspec.to_builtins(become(**taken)) == msgspec.to_builtins(become(logprobs=None))
