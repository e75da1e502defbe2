"""Fields that no request here has, and what becomes of them."""

from __future__ import annotations

from typing import Any

import msgspec

from .anthropic_protocol import MESSAGES_FIELDS, CountRequest, MessagesRequest
from .ollama_protocol import OllamaChatRequest, OllamaGenerateRequest
from .protocol import ChatRequest, CompletionRequest, Sampling, TokenizeRequest, TranscriptionRequest
from .responses_protocol import ResponsesRequest
from .text_protocol import ClassifyRequest, EmbeddingRequest, EmbedRequest, PredictRequest, RerankRequest, ScoreRequest

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
_IGNORED_BY: dict[type[msgspec.Struct], frozenset[str]] = {
    CountRequest: MESSAGES_FIELDS,
    MessagesRequest: MESSAGES_FIELDS,
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
    OllamaChatRequest: {"prompt": "use messages, or /api/generate"},
    OllamaGenerateRequest: {
        "context": "tokens are not kept; use /api/chat, with all messages",
        "messages": "use prompt, or /api/chat",
        "suffix": "nothing is filled in; leave it out",
        "template": "start the server with --chat-template FILE",
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
    MessagesRequest: {"container": (), "mcp_servers": ([],)},
    OllamaChatRequest: {"logprobs": (False,), "shift": (True,), "top_logprobs": (0,), "truncate": (True,)},
    OllamaGenerateRequest: {
        "context": ([],),
        "logprobs": (False,),
        "shift": (True,),
        "suffix": ("",),
        "template": ("",),
        "top_logprobs": (0,),
        "truncate": (True,),
    },
    ClassifyRequest: {**_POOLED, "activation": (True,), "add_special_tokens": (True,)},
    EmbedRequest: {"parameters": ({},)},
    PredictRequest: {"parameters": ({},)},
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


def ignored_fields(kind: type[msgspec.Struct]) -> frozenset[str] | set[str]:
    """Fields that a request of that kind may have with any value, which change nothing."""
    return IGNORED | _IGNORED_BY.get(kind, frozenset())


def refused_fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Fields that a request of that kind may not have, and what to do."""
    return _REFUSED | _REFUSED_BY.get(kind, {})


def neutral_fields(kind: type[msgspec.Struct]) -> dict[str, tuple[Any, ...]]:
    """Fields that a request of that kind may have with certain values, which change nothing, null being one."""
    fields = _NEUTRAL_BY.get(kind, {})
    if issubclass(kind, Sampling):
        fields = dict.fromkeys(refused_fields(kind), ()) | _NEUTRAL | fields
    return {name: (None, *values) for name, values in fields.items()}
