"""Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..llm.engine import SamplingParams
from ..llm.generation_defaults import GenerationDefaults
from .answer_routes import adapter_of, answer_chat, chat_tokens
from .anthropic_input import chat_of, named_as_sent
from .anthropic_protocol import CountRequest, MessagesRequest
from .anthropic_writer import MessageWriter
from .chat import ChatReply
from .errors import ApiError
from .guard import read_body
from .reading import read
from .sampling import chat_params, with_allowed_tools
from .service import Service
from .streams import JsonResponse, Writer
from .usage import UsageCount


async def messages(service: Service, http: Request) -> Response:
    """POST /v1/messages."""
    asked = read(MessagesRequest, await read_body(http, service.options.max_body_bytes))
    adapter = adapter_of(service, asked.model)
    service.check_writes()
    if asked.max_tokens < 1:  # -1, which is no limit elsewhere, is none of Anthropic's
        raise ApiError(400, f"max_tokens={asked.max_tokens}: expected at least 1", param="max_tokens")
    chat = chat_of(asked)
    with named_as_sent(chat.places):
        request = with_allowed_tools(chat.request)

        def writer(reply: ChatReply, _: SamplingParams, usage: UsageCount) -> Writer:
            return MessageWriter(reply, asked.max_tokens, usage, adapter or service.options.model)

        return await answer_chat(service, http, request, adapter, writer)


async def count_tokens(service: Service, http: Request) -> Response:
    """POST /v1/messages/count_tokens: how many tokens the prompt of a message has."""
    asked = read(CountRequest, await read_body(http, service.options.max_body_bytes))
    adapter_of(service, asked.model)
    service.check_writes()
    chat = chat_of(asked)
    with named_as_sent(chat.places):
        request = with_allowed_tools(chat.request)
        params = chat_params(request, GenerationDefaults())
        _, tokens, _, _ = await chat_tokens(service, request, params)
    return JsonResponse({"input_tokens": len(tokens)})
