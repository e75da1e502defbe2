"""Bodies of requests, as OpenAI's API and vLLM's extensions of it name their fields."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from .errors import ApiError


class StreamOptions(msgspec.Struct, kw_only=True):
    """What a stream has besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool | None = None


class Guide(msgspec.Struct, kw_only=True):
    """`structured_outputs` of vLLM: the answer follows one of the three."""

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None


class Sampling(msgspec.Struct, kw_only=True):
    """Fields that both kinds of completion have."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    structured_outputs: Guide | None = None


class CompletionRequest(Sampling, kw_only=True):
    """Body of /v1/completions."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class ContentPart(msgspec.Struct, kw_only=True):
    """A piece of a message; text and refusals can be read."""

    type: str
    text: str | None = None
    refusal: str | None = None


class FunctionCall(msgspec.Struct, kw_only=True):
    """A call that the assistant made; `arguments` is JSON in a string."""

    name: str
    arguments: str = "{}"


class ToolCall(msgspec.Struct, kw_only=True):
    """A call of a tool."""

    function: FunctionCall
    id: str = ""
    type: Literal["function"] = "function"


class Message(msgspec.Struct, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Function(msgspec.Struct, kw_only=True):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True):
    """A tool; functions are the only kind."""

    function: Function
    type: Literal["function"] = "function"


class NamedFunction(msgspec.Struct, kw_only=True):
    """Name of a function."""

    name: str


class NamedTool(msgspec.Struct, kw_only=True):
    """Name of a tool."""

    function: NamedFunction
    type: Literal["function"] = "function"


class AllowedTools(msgspec.Struct, kw_only=True):
    """The tools that the answer may call, or has to call one of."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool]


class ToolChoice(msgspec.Struct, kw_only=True):
    """The tool that the answer has to call, or those that it may call."""

    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None
    type: Literal["function", "allowed_tools"] = "function"


class JsonSchema(msgspec.Struct, kw_only=True):
    """A schema and its name."""

    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """Form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class ChatRequest(Sampling, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Body of /tokenize: `prompt`, or `messages` as a chat has them. `content` is llama.cpp's name of `prompt`."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool = True
    add_special: bool | None = None


class TemplateRequest(msgspec.Struct, kw_only=True):
    """Body of /apply-template."""

    messages: list[Message]
    model: str | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Body of /detokenize."""

    tokens: list[int]
    model: str | None = None


# Fields of OpenAI's API that change nothing of an answer here.
IGNORED = {
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
}
# Fields whose effect a client would miss, and what to do.
_REFUSED = {
    "audio": "this model reads and writes text only",
    "modalities": "this model reads and writes text only; leave it out, or ask for ['text']",
    "web_search_options": "there is no web search",
    "functions": "use tools",
    "function_call": "use tool_choice",
    # Of other servers.
    "guided_json": "use structured_outputs, {'json': ...}",
    "guided_regex": "use structured_outputs, {'regex': ...}",
    "guided_choice": "use structured_outputs, {'choice': [...]}",
    "enable_thinking": "use chat_template_kwargs, {'enable_thinking': ...}",
    "max_new_tokens": "use max_tokens",
}
_REFUSED_BY: dict[type[msgspec.Struct], dict[str, str]] = {
    ChatRequest: {"prompt": "use messages, or /v1/completions", "best_of": "use n"},
    CompletionRequest: {
        "messages": "use prompt, or /v1/chat/completions",
        "max_completion_tokens": "use max_tokens",
        "response_format": "use structured_outputs",
    },
}
_HARMLESS: dict[str, tuple[Any, ...]] = {"modalities": (None, ["text"])}

Body = TypeVar("Body", bound=msgspec.Struct)


def read(kind: type[Body], data: bytes) -> Body:
    """The request in a body.

    Raises:
        ApiError: It is not JSON, a field has another type than expected, or nobody knows the field.
    """
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, f"the body is a {type(found).__name__}; expected a JSON object", code="invalid_type")
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    refused = _REFUSED | _REFUSED_BY.get(kind, {})
    for name in found.keys() - names - IGNORED:
        if name not in refused:
            near = difflib.get_close_matches(name[:80], names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ApiError(
                400, f"unrecognized request argument: {name[:80]}{hint}", param=name[:80], code="unknown_parameter"
            )
        if found[name] not in _HARMLESS.get(name, (None,)):
            raise ApiError(400, f"{name}: {refused[name]}", param=name, code="unsupported_parameter")
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        at = re.search(r"`\$\.?(.+)`$", str(error))
        missing = re.search(r"missing required field `(\w+)`", str(error))
        param = at[1] if at else missing[1] if missing else None
        values = _values(kind, at[1]) if at and "enum value" in str(error) else []
        expected = f"; expected {', '.join(values)}" if values else ""
        raise ApiError(400, f"{error}{expected}", param=param, code="invalid_type") from None


def _values(kind: type[msgspec.Struct], path: str) -> list[str]:
    """What a field of a few values may be, by its place in a body, such as "messages[0].role"."""
    found: list[Any] = [kind]
    for name in re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", path)):
        structs = [at for at in found if isinstance(at, type) and issubclass(at, msgspec.Struct)]
        fields = (field for struct in structs for field in msgspec.structs.fields(struct))
        found = list(_leaves(field.type for field in fields if field.encode_name == name))
    return [str(value) for at in found if get_origin(at) is Literal for value in get_args(at)]


def _leaves(kinds: Iterable[Any]) -> Iterator[Any]:
    """The types that a list or union is made of."""
    for kind in kinds:
        if get_origin(kind) in (Union, types.UnionType, list):
            yield from _leaves(get_args(kind))
        else:
            yield kind
