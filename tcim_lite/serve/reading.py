"""From the bytes of a body to a request; what becomes of fields that no request here has."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from .errors import ApiError
from .protocol import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RerankRequest,
    Sampling,
    ScoreRequest,
    TokenizeRequest,
    TranscriptionRequest,
)
from .responses_protocol import ResponsesRequest

# Fields of OpenAI's API that change nothing of an answer here, and of llama.cpp's for samplers that are off.
IGNORED = {
    "dry_allowed_length",
    "dry_base",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "metadata",
    "mirostat_eta",
    "mirostat_tau",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
    "xtc_threshold",
}
# Fields whose effect a client would miss, and what to do.
_REFUSED = {
    "audio": "the server writes text only",
    "modalities": "the server writes text only; leave it out, or ask for ['text']",
    "moderation": "nothing is moderated here",
    "web_search_options": "there is no web search",
    "functions": "use tools",
    "function_call": "use tool_choice",
    # Of other servers.
    "cache_salt": "all clients of a server share the cached beginnings of prompts",
    "chat_template": "start the server with --chat-template FILE",
    "enable_thinking": "use chat_template_kwargs, {'enable_thinking': ...}",
    "grammar": "use structured_outputs",
    "guided_choice": "use structured_outputs, {'choice': [...]}",
    "guided_grammar": "use structured_outputs with json, regex or choice",
    "guided_json": "use structured_outputs, {'json': ...}",
    "guided_regex": "use structured_outputs, {'regex': ...}",
    "json_schema": "use response_format, {'type': 'json_schema', ...}, or structured_outputs, {'json': ...}",
    "lora": "name an adapter that the server was started with as the model",
    "max_new_tokens": "use max_tokens",
    "n_predict": "use max_tokens",
    "repeat_penalty": "use repetition_penalty",
    "request_id": "send the header x-request-id",
    "samplers": "their order is fixed: penalties, temperature, top_k, top_p, min_p",
}
_REFUSED_BY: dict[type[msgspec.Struct], dict[str, str]] = {
    ChatRequest: {"prompt": "use messages, or /v1/completions", "best_of": "use n"},
    CompletionRequest: {
        "messages": "use prompt, or /v1/chat/completions",
        "max_completion_tokens": "use max_tokens",
        "response_format": "use structured_outputs",
    },
    ResponsesRequest: {
        "background": "an answer is made while its client waits; leave it out, and use stream",
        "context_management": "conversations are not summed up here; send fewer items, or truncation 'auto'",
        "conversation": "nothing is stored; send the whole conversation as input",
        "logprobs": "use include, ['message.output_text.logprobs'], and top_logprobs",
        "max_completion_tokens": "use max_output_tokens",
        "max_tokens": "use max_output_tokens",
        "messages": "use input, or /v1/chat/completions",
        "n": "one answer is made; use /v1/chat/completions for more",
        "previous_response_id": "nothing is stored; send the whole conversation as input",
        "prompt": "prompts are not stored here; use instructions and input",
        "reasoning_effort": "use reasoning, {'effort': ...}",
        "response_format": "use text, {'format': ...}",
    },
}
# Other servers' fields, and the values of them that ask for what is done here anyway: clients send them as defaults.
# null does so too, here and where a field is refused.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "bad_words": ([],),
    "backend_sampling": (False,),
    "cache_prompt": (True,),
    "documents": ([],),
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "grammar": ("",),
    "id_slot": (-1,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logits_processors": ([],),
    "lora": ([],),
    "min_keep": (0,),
    "mirostat": (0,),
    "modalities": (["text"],),
    "n_cache_reuse": (0,),
    "n_indent": (0,),
    "n_keep": (0,),
    "n_predict": (-1,),
    "n_probs": (0,),
    "parse_tool_calls": (True,),
    "post_sampling_probs": (False,),
    "priority": (0,),
    "prompt_logprobs": (),
    "reasoning_format": ("auto", "deepseek"),
    "repeat_last_n": (-1,),
    "repeat_penalty": (1,),
    "response_fields": ([],),
    "return_progress": (False,),
    "return_token_ids": (False,),
    "return_tokens": (False,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "t_max_predict_ms": (0, -1),
    "thinking_forced_open": (False,),
    "timings_per_token": (False,),
    "top_n_sigma": (-1,),
    "truncate_prompt_tokens": (),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "xtc_probability": (0,),
}

_POOLED: dict[str, tuple[Any, ...]] = {"priority": (0,), "truncate_prompt_tokens": (), "use_activation": (True,)}
_RANKED: dict[str, tuple[Any, ...]] = {
    **_POOLED,
    "activation": (True,),
    "max_chunks_per_doc": (),
    "max_tokens_per_doc": (),
    "mm_processor_kwargs": (),
    "rank_fields": (["text"],),
    "softmax": (True,),
}
_NEUTRAL_BY: dict[type[msgspec.Struct], dict[str, tuple[Any, ...]]] = {
    ChatRequest: {
        "add_special_tokens": (False,),
        "echo": (False,),
        "include_reasoning": (True,),
    },
    CompletionRequest: {"add_special_tokens": (True,)},
    EmbeddingRequest: {**_POOLED, "add_special_tokens": (True,), "embd_normalize": (2,)},
    RerankRequest: _RANKED,
    ScoreRequest: _RANKED,
    ResponsesRequest: {
        "background": (False,),
        "context_management": ([],),
        "enable_response_messages": (False,),
        "n": (1,),
    },
    TokenizeRequest: {
        "add_generation_prompt": (True,),
        "continue_final_message": (False,),
        "parse_special": (True,),
        "return_token_strs": (False,),
        "with_pieces": (False,),
    },
    TranscriptionRequest: {"chunking_strategy": ("auto",)},
}

Body = TypeVar("Body", bound=msgspec.Struct)


def neutral_fields(kind: type[msgspec.Struct]) -> dict[str, tuple[Any, ...]]:
    """Fields that a request of that kind may have with certain values, which change nothing, null being one."""
    fields = _NEUTRAL_BY.get(kind, {})
    if issubclass(kind, Sampling):
        fields = dict.fromkeys(_REFUSED | _REFUSED_BY[kind], ()) | _NEUTRAL | fields
    return {name: (None, *values) for name, values in fields.items()}


def read(kind: type[Body], data: bytes) -> Body:
    """The request in a body.

    Raises:
        ApiError: It is not JSON, a field has another type than expected, or nobody knows the field.
    """
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ApiError(400, f"the body is not JSON: {_cause(error, data)}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, f"the body is a {type(found).__name__}; expected a JSON object", code="invalid_type")
    return _request(kind, found)


def read_fields(kind: type[Body], fields: Iterable[tuple[str, bytes]]) -> Body:
    """The request in the fields of a form, each a text; of a field of bytes, bytes.

    Raises:
        ApiError: A field comes twice or is no text, else as `read`.
    """
    types_of = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    found: dict[str, Any] = {}
    for name, value in fields:
        try:
            given = value if types_of.get(name) is bytes else value.decode()
        except UnicodeDecodeError:
            raise ApiError(400, f"{name[:80]}: is no text in UTF-8", param=name[:80], code="invalid_type") from None
        if name.endswith("[]"):
            found.setdefault(name, []).append(given)
        elif name in found:
            raise ApiError(400, f"{name[:80]}: comes twice", param=name[:80], code="invalid_type")
        else:
            found[name] = given
    return _request(kind, found, are_texts=True)


def _request(kind: type[Body], found: dict[str, Any], *, are_texts: bool = False) -> Body:
    _check_names(kind, found)
    try:
        values = {name: _whole(kind, name, value) for name, value in found.items()}
        return msgspec.convert(values, kind, strict=not are_texts)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        at = re.search(r"`\$\.?(.+)`$", str(error))
        missing = re.search(r"missing required field `(\w+)`", str(error))
        param = at[1] if at else missing[1] if missing else None
        allowed = _values(kind, at[1]) if at and "enum value" in str(error) else []
        expected = f"; expected {', '.join(allowed)}" if allowed else ""
        raise ApiError(400, f"{error}{expected}", param=param, code="invalid_type") from None


def _whole(kind: type[msgspec.Struct], name: str, value: Any) -> Any:
    """A number like 5.0, as some clients write 5, as an integer where a field takes one."""
    if isinstance(value, float) and value.is_integer():
        leaves = {
            leaf
            for field in msgspec.structs.fields(kind)
            if field.encode_name == name
            for leaf in _leaves([field.type])
        }
        if int in leaves and float not in leaves:
            return int(value)
    return value


def _cause(error: Exception, data: bytes) -> str:
    """What is wrong with a body; for half of a character msgspec says that data was truncated."""
    if "truncated" in str(error) and re.search(rb"\\u[dD][89a-fA-F]", data):
        return f"{error}, or a text has half of a surrogate pair, such as \\ud83d: it was cut within a character"
    return str(error)


def _check_names(kind: type[msgspec.Struct], found: dict[str, Any]) -> None:
    """Refuses fields that a request of that kind has not, but for values that change nothing.

    Raises:
        ApiError: 400.
    """
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    refused, neutral = _REFUSED | _REFUSED_BY.get(kind, {}), neutral_fields(kind)
    for name in found.keys() - names - IGNORED:
        if name in neutral:
            if _is_one_of(found[name], neutral[name]):
                continue
            values = ", ".join(repr(value) for value in neutral[name][1:])
            reason = refused.get(name, f"not supported; leave it out{f', or send {values}' if values else ''}")
            raise ApiError(400, f"{name}: {reason}", param=name, code="unsupported_parameter")
        near = difflib.get_close_matches(name[:80], names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ApiError(
            400, f"unrecognized request argument: {name[:80]}{hint}", param=name[:80], code="unknown_parameter"
        )


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether a value is among those allowed, as JSON compares: 0 is 0.0, but not false."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in allowed)


def _values(kind: type[msgspec.Struct], path: str) -> list[str]:
    """What a field of a few values may be, by its place in a body, such as "messages[0].role"."""
    found: list[Any] = [kind]
    for name in re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", path)):
        structs = [at for at in found if isinstance(at, type) and issubclass(at, msgspec.Struct)]
        fields = (field for struct in structs for field in msgspec.structs.fields(struct))
        found = list(_leaves(field.type for field in fields if field.encode_name.removesuffix("[]") == name))
    return [str(value) for at in found if get_origin(at) is Literal for value in get_args(at)]


def _leaves(kinds: Iterable[Any]) -> Iterator[Any]:
    """The types that a list or union is made of."""
    for kind in kinds:
        if get_origin(kind) in (Union, types.UnionType, list):
            yield from _leaves(get_args(kind))
        else:
            yield kind
