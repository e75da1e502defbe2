"""The routes that make the engine work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..llm.engine import SamplingParams
from ..llm.media import Seen
from .answers import Answers
from .chat import ChatReply, chat_prompt, params_for
from .choices import ChoicesWriter
from .completion import CompletionReply, completion_prompts, prompt_count
from .errors import ApiError, closing
from .guard import read_body
from .media_parts import ChatMedia
from .protocol import ChatRequest, CompletionRequest, Message, Sampling
from .reading import read
from .response_writer import ResponseWriter
from .responses_input import chat_request, named_as_asked
from .responses_protocol import ResponsesRequest
from .sampling import chat_params, choices, completion_params, guided_by, with_allowed_tools
from .service import Service
from .streams import EventStream, Writer, whole
from .truncation import Prompt, prompt_within
from .usage import UsageCount


async def chat_completions(service: Service, http: Request) -> Response:
    """POST /v1/chat/completions."""
    request = with_allowed_tools(read(ChatRequest, await read_body(http, service.options.max_body_bytes)))
    adapter = adapter_of(service, request.model)
    service.check_writes()
    n = choices(request, 1, service.options.max_choices)

    def writer(reply: ChatReply, _: SamplingParams, usage: UsageCount) -> Writer:
        return ChoicesWriter(reply, usage, adapter or service.options.model, request.stream_options)

    return await answer_chat(service, http, request, adapter, writer, n=n)


async def responses(service: Service, http: Request) -> Response:
    """POST /v1/responses."""
    asked = read(ResponsesRequest, await read_body(http, service.options.max_body_bytes))
    adapter = adapter_of(service, asked.model)
    service.check_writes()
    with named_as_asked():
        request = with_allowed_tools(chat_request(asked))
        left = (asked.max_output_tokens or 1) if asked.truncation == "auto" else None

        def writer(reply: ChatReply, params: SamplingParams, usage: UsageCount) -> Writer:
            return ResponseWriter(asked, reply, params, usage, adapter or service.options.model)

        return await answer_chat(service, http, request, adapter, writer, left=left)


async def completions(service: Service, http: Request) -> Response:
    """POST /v1/completions."""
    request = read(CompletionRequest, await read_body(http, service.options.max_body_bytes))
    adapter = adapter_of(service, request.model)
    service.check_writes()
    n = choices(request, prompt_count(request.prompt), service.options.max_choices)  # before what may be many are read
    params = replace(completion_params(request, service.defaults), adapter=adapter)
    most = service.engines.slots.context_length
    prompts = await service.in_thread(lambda: completion_prompts(request.prompt, service.vocabulary, most))

    def writer(usage: UsageCount) -> Writer:
        reply = CompletionReply(request, prompts, n, service.vocabulary)
        return ChoicesWriter(reply, usage, adapter or service.options.model, request.stream_options)

    return await answer(service, http, request, prompts, params, n, writer)


def adapter_of(service: Service, name: str | None) -> str | None:
    """The adapter of that name, or None for the base model; a request may leave the name out, or empty as with vLLM.

    Raises:
        ApiError: 404, 503 at shutdown.
    """
    if service.is_closing or not service.engines.is_alive:
        raise closing()
    if not name or name == service.options.model:
        return None
    adapters = service.engines.slots.adapters.names
    if name in adapters:
        return name
    served = " and ".join(map(repr, [service.options.model, *adapters]))
    raise ApiError(
        404, f"model {name!r:.120} is not served here; this is {served}", param="model", code="model_not_found"
    )


async def chat_tokens(
    service: Service, request: ChatRequest, params: SamplingParams, answer: int | None = None
) -> tuple[str, list[int], list[tuple[str, Seen]], ChatMedia]:
    """The prompt of a chat, its tokens, its images and sounds, and what places these in it.

    With `answer`, the oldest turns are left out for an answer of that many tokens.
    """
    most = service.engines.slots.context_length
    media = ChatMedia(service.images, service.sounds, most)

    def prompt_of(messages: list[Message]) -> Prompt:
        own = msgspec.structs.replace(request, messages=messages)
        text = media.expand(chat_prompt(own, service.template, params, media.marks), messages)
        return text, service.vocabulary.encode_prompt(text, special=False, most=most), media.of(messages)

    def prepare() -> Prompt:
        media.read(request.messages)
        if answer is None:
            return prompt_of(request.messages)
        return prompt_within(request.messages, prompt_of, most - answer)

    return *await service.in_thread(prepare), media


async def chat_prompt_of(
    service: Service, request: ChatRequest, params: SamplingParams, answer: int | None = None
) -> tuple[str, Sequence[int]]:
    """The prompt of a chat, and its tokens, with features of images and sounds; arguments as those of `chat_tokens`."""
    text, tokens, shown, media = await chat_tokens(service, request, params, answer)
    return text, await service.in_tower_thread(lambda: media.place(tokens, shown)) if shown else tokens


async def answer_chat(
    service: Service,
    http: Request,
    request: ChatRequest,
    adapter: str | None,
    make_writer: Callable[[ChatReply, SamplingParams, UsageCount], Writer],
    *,
    n: int = 1,
    left: int | None = None,
    stream: type[EventStream] = EventStream,
) -> Response:
    """As `answer`, of a chat; with `left`, turns are left out as `chat_tokens` does for an answer of that length."""
    params = replace(chat_params(request, service.defaults), adapter=adapter)
    text, prompt = await chat_prompt_of(service, request, params, left)
    params = params_for(text, params, service.vocabulary)

    def writer(usage: UsageCount) -> Writer:
        return make_writer(ChatReply(request, text, n, service.vocabulary), params, usage)

    return await answer(service, http, request, [prompt], params, n, writer, stream)


async def answer(
    service: Service,
    http: Request,
    request: Sampling,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    n: int,
    make_writer: Callable[[UsageCount], Writer],
    stream: type[EventStream] = EventStream,
) -> Response:
    """The response to a request, in one piece or as a stream, once the engine has taken its prompts."""
    answers = Answers(service.engines, service.metrics, service.options.timeout_s)
    try:
        await answers.submit(service.executor, prompts, params, n)
    except ApiError as error:
        if error.message.startswith("structured output: "):
            error.param = guided_by(request)
        raise
    # Of prompts that the engine has checked.
    writer = make_writer(UsageCount([len(prompt) for prompt in prompts], n))
    if request.stream:
        return stream(answers, writer, service.options)
    return await whole(http.receive, answers, writer)
