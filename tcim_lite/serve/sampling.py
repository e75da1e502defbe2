"""From the fields of a request to `SamplingParams`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Container
from dataclasses import replace
from typing import Any

import msgspec

from ..llm.engine import SamplingParams, StructuredOutput, Tagged
from ..llm.generation_defaults import GenerationDefaults
from .errors import ApiError, invalid
from .protocol import ChatRequest, Choices, CompletionRequest, Sampling, ToolChoice
from .tool_calls import BEGIN_CALL, END_CALL

# As they are named in both.
_PLAIN = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)
_NO_GUIDES = (
    "grammar",
    "structural_tag",
    "whitespace_pattern",
    "disable_any_whitespace",
    "disable_additional_properties",
)
_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions
_MOST_STOPS, _MOST_STOP_CHARS = 64, 1024  # editors that complete code send dozens


def completion_params(request: CompletionRequest, defaults: GenerationDefaults) -> SamplingParams:
    """How a completion is made.

    Raises:
        ApiError: A value out of its range, or something that cannot be done.
    """
    if request.suffix:
        raise ApiError(400, "suffix: the model cannot fill in text before one", param="suffix")
    if request.best_of not in (None, 1, request.n):
        raise ApiError(400, "best_of: only the n answers that are returned are made; leave it out", param="best_of")
    max_tokens = _COMPLETION_TOKENS if request.max_tokens is None else _limit(request.max_tokens)
    of_prompt = request.logprobs if request.echo else None
    least = 0 if request.echo else 1
    return _params(request, defaults, max_tokens, request.logprobs, _guide(request), of_prompt, least)


def chat_params(request: ChatRequest, defaults: GenerationDefaults) -> SamplingParams:
    """How a reply is made.

    Raises:
        ApiError: A value out of its range, or something that cannot be done.
    """
    if request.top_logprobs and not request.logprobs:
        raise ApiError(400, "top_logprobs: set logprobs to true as well", param="top_logprobs")
    completion = request.max_completion_tokens
    max_tokens = _limit(request.max_tokens if completion is None else completion)
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    form = _or_calls(request, _format(request))
    guides = [guide for guide in (_guide(request), form, forced_call(request)) if guide is not None]
    if len(guides) > 1:
        raise ApiError(400, "structured_outputs, response_format and a tool_choice that forces a call: got several")
    try:
        return _params(request, defaults, max_tokens, logprobs, guides[0] if guides else None)
    except ApiError as error:
        given = {"logprobs": "top_logprobs"}
        if request.max_completion_tokens is not None:
            given["max_tokens"] = "max_completion_tokens"
        name = given.get(error.param or "")
        if name is None:
            raise
        raise ApiError(400, str(error).replace(str(error.param), name, 1), param=name, code=error.code) from None


def _limit(tokens: int | None) -> int | None:
    """-1 is how llama.cpp's clients ask for no limit."""
    return None if tokens == -1 else tokens


def choices(request: Choices, prompts: int, most: int) -> int:
    """How many answers each prompt gets.

    Raises:
        ApiError: None, or too many.
    """
    n = 1 if request.n is None else request.n
    if not 1 <= n * prompts <= most:
        raise ApiError(400, f"n={n} for {prompts} prompts: expected 1 to {most} answers in all", param="n")
    return n


def with_allowed_tools(request: ChatRequest) -> ChatRequest:
    """A request whose `tool_choice` lists tools, as one that has only those.

    Raises:
        ApiError: The choice has no function or list, or names a tool that is not among the tools.
    """
    choice = request.tool_choice
    if not isinstance(choice, ToolChoice):
        return request
    if choice.type == "function":
        if choice.function is None:
            raise ApiError(400, "tool_choice: function is missing", param="tool_choice.function")
        return request
    allowed = choice.allowed_tools
    if allowed is None:
        raise ApiError(400, "tool_choice: allowed_tools is missing", param="tool_choice.allowed_tools")
    names = {tool.function.name for tool in allowed.tools}
    tools = request.tools or []
    for name in sorted(names):
        _check_known(name, {tool.function.name for tool in tools})
    left = [tool for tool in tools if tool.function.name in names]
    return msgspec.structs.replace(request, tools=left, tool_choice=allowed.mode)


# Of a function that is declared without any.
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def named_tool(request: ChatRequest) -> str | None:
    """The tool that has to be called, by name."""
    choice = request.tool_choice
    return choice.function.name if isinstance(choice, ToolChoice) and choice.function is not None else None


def _check_known(name: str, known: Container[str]) -> None:
    if name not in known:
        raise ApiError(400, f"tool_choice: no tool is named {name!r:.80}", param="tool_choice")


def forced_call(request: ChatRequest) -> StructuredOutput | None:
    """The form of an answer that has to be a call: the arguments of the named function, or a call of any.

    Raises:
        ApiError: The tool is not among the tools.
    """
    tools = request.tools or []
    if request.tool_choice in (None, "none", "auto"):
        return None
    schemas = {tool.function.name: tool.function.parameters or _NO_PARAMETERS for tool in tools}
    if (named := named_tool(request)) is not None:
        _check_known(named, schemas)
        return StructuredOutput(json=schemas[named])
    if not schemas:
        raise ApiError(400, "tool_choice: a call is required, but there are no tools", param="tool_choice")
    calls = [
        {
            "type": "object",
            # With a name of its own, "#/$defs/x" in the tool's schema means its own $defs, as its author wrote it.
            "properties": {"name": {"const": name}, "arguments": {"$id": f"urn:tool:{index}", **schema}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for index, (name, schema) in enumerate(schemas.items())
    ]
    return StructuredOutput(json={"anyOf": calls})


def _or_calls(request: ChatRequest, form: StructuredOutput | None) -> StructuredOutput | None:
    """A form, or in its place calls of tools, as the model chooses; their arguments are its own, as without a form."""
    if form is None or not request.tools or request.tool_choice not in (None, "auto"):
        return form
    names = {"enum": [tool.function.name for tool in request.tools]}
    call = {
        "type": "object",
        "properties": {"name": names, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    return replace(form, tagged=Tagged(begin=BEGIN_CALL, json=call, end=END_CALL))


def guided_by(request: Sampling) -> str | None:
    """The field that gives an answer its form."""
    if request.structured_outputs is not None:
        return "structured_outputs"
    if isinstance(request, ChatRequest):
        if request.response_format is not None and request.response_format.type != "text":
            return "response_format"
        return "tools" if request.tools else None
    return None


def _format(request: ChatRequest) -> StructuredOutput | None:
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        if wanted.json_schema is not None:
            raise ApiError(
                400, "response_format: a json_schema needs the type json_schema", param="response_format.type"
            )
        return StructuredOutput(json=wanted.schema or {"type": "object"})
    if wanted.json_schema is None:
        hint = "; put schema into it, beside a name" if wanted.schema else ""
        raise ApiError(400, f"response_format: json_schema is missing{hint}", param="response_format.json_schema")
    return StructuredOutput(json=wanted.json_schema.schema or {"type": "object"})


def _guide(request: Sampling) -> StructuredOutput | None:
    guide = request.structured_outputs
    if guide is None:
        return None
    for name in _NO_GUIDES:
        if getattr(guide, name):
            raise ApiError(
                400,
                f"structured_outputs: {name} is not supported; use json, regex or choice",
                param="structured_outputs",
            )
    schema = {"type": "object"} if guide.json is None and guide.json_object else guide.json
    try:
        if isinstance(schema, str) and not isinstance(json.loads(schema), dict):
            raise ValueError("json is no schema; expected an object")
        return StructuredOutput(
            json=schema, regex=guide.regex, choice=None if guide.choice is None else tuple(guide.choice)
        )
    except (ValueError, RecursionError) as error:
        raise invalid(ValueError(str(error)), "structured_outputs") from None


def _params(
    request: Sampling,
    defaults: GenerationDefaults,
    max_tokens: int | None,
    logprobs: int | None,
    structured: StructuredOutput | None,
    prompt_logprobs: int | None = None,
    least_tokens: int = 1,
) -> SamplingParams:
    if request.stream_options is not None and not request.stream:
        raise ApiError(400, "stream_options: only with stream true", param="stream_options")
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if len(stop) > _MOST_STOPS or any(len(text) > _MOST_STOP_CHARS for text in stop):
        raise ApiError(
            400, f"stop: expected at most {_MOST_STOPS} strings of at most {_MOST_STOP_CHARS} characters", param="stop"
        )
    try:
        if max_tokens is not None and max_tokens < least_tokens:
            raise ValueError(f"max_tokens={max_tokens}: expected at least {least_tokens}, or none for no limit")
        return SamplingParams.of(
            defaults,
            **_plain(request),
            logit_bias=_bias(request.logit_bias),
            max_tokens=max_tokens,
            min_tokens=request.min_tokens or 0,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            stop=tuple(stop),
            stop_token_ids=frozenset(request.stop_token_ids or ()),
            ignore_eos=bool(request.ignore_eos),
            structured=structured,
        )
    except (ValueError, OverflowError) as error:
        raise invalid(ValueError(str(error))) from None


def _plain(request: Sampling) -> dict[str, Any]:
    """The fields of `_PLAIN` that are given, in the values that `Sampler` takes."""
    given = {name: value for name in _PLAIN if (value := getattr(request, name)) is not None}
    if given.get("top_p") == 0:  # OpenAI's lower end: the likeliest token alone
        given["top_p"] = sys.float_info.min
    if given.get("top_k") == -1:  # vLLM's name of all tokens
        given["top_k"] = 0
    if -(2**63) <= given.get("seed", 0) < 0:  # OpenAI's are int64, those of numpy not negative
        given["seed"] += 2**64
    return given


def _bias(given: dict[str, float] | None) -> dict[int, float] | None:
    """Token ids come as strings; -100 forbids a token, 100 leaves no other (OpenAI's rule)."""
    for name, value in (given or {}).items():
        if not (name.isascii() and name.isdigit() and len(name) < 12):
            raise ApiError(400, f"logit_bias: {name!r:.40} is no token id", param="logit_bias")
        if not -100 <= value <= 100:
            raise ApiError(400, f"logit_bias: {value} for token {name}; expected -100 to 100", param="logit_bias")
    return {int(name): -math.inf if value == -100 else value for name, value in given.items()} if given else None


def seeded(params: SamplingParams, index: int) -> dict[str, Any]:
    """What differs for the answer of that index: with one seed, n answers would be the same."""
    return {} if params.seed is None or index == 0 else {"seed": params.seed + index}
