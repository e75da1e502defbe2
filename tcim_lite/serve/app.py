"""The routes, and how every failure becomes OpenAI's error object."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from . import (
    answer_routes,
    anthropic_routes,
    classifying,
    embeddings,
    information,
    ollama_routes,
    openapi,
    ranking,
    tei_routes,
    transcriptions,
)
from .anthropic_protocol import CountRequest, MessagesRequest
from .errors import ApiError
from .guard import Guard, error_response
from .ollama_protocol import (
    OllamaChatRequest,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    OllamaShowRequest,
)
from .options import ServeOptions
from .protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TemplateRequest,
    TokenizeRequest,
    TranscriptionRequest,
)
from .responses_protocol import ResponsesRequest
from .service import Service
from .streams import JsonResponse
from .text_protocol import ClassifyRequest, EmbeddingRequest, EmbedRequest, PredictRequest, RerankRequest, ScoreRequest

_log = logging.getLogger(__name__)

# What a client sends may be in a message; it writes no lines of the log, and commands no terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Endpoint = Callable[[Service, Request], Awaitable[Response]]

ROUTES: tuple[tuple[str, str, Endpoint, type[msgspec.Struct] | None], ...] = (
    ("GET", "/", information.page, None),
    ("POST", "/", tei_routes.root, None),
    ("GET", "/info", tei_routes.info, None),
    ("GET", "/health", information.health, None),
    ("GET", "/metrics", information.metrics, None),
    ("GET", "/version", information.version, None),
    ("GET", "/props", information.props, None),
    ("GET", "/slots", information.slots, None),
    ("GET", "/v1/models", information.models, None),
    ("GET", "/v1/models/{name:path}", information.models, None),
    ("POST", "/tokenize", information.tokenize, TokenizeRequest),
    ("POST", "/apply-template", information.apply_template, TemplateRequest),
    ("POST", "/detokenize", information.detokenize, DetokenizeRequest),
    ("POST", "/v1/completions", answer_routes.completions, CompletionRequest),
    ("POST", "/v1/chat/completions", answer_routes.chat_completions, ChatRequest),
    ("POST", "/v1/responses", answer_routes.responses, ResponsesRequest),
    ("POST", "/v1/messages", anthropic_routes.messages, MessagesRequest),
    ("POST", "/v1/messages/count_tokens", anthropic_routes.count_tokens, CountRequest),
    ("POST", "/api/chat", ollama_routes.chat, OllamaChatRequest),
    ("POST", "/api/generate", ollama_routes.generate, OllamaGenerateRequest),
    ("POST", "/api/embed", ollama_routes.embed, OllamaEmbedRequest),
    ("POST", "/api/embeddings", ollama_routes.embeddings, OllamaEmbeddingsRequest),
    ("POST", "/api/show", ollama_routes.show, OllamaShowRequest),
    ("GET", "/api/tags", ollama_routes.tags, None),
    ("GET", "/api/ps", ollama_routes.running, None),
    ("GET", "/api/version", ollama_routes.version, None),
    ("POST", "/v1/embeddings", embeddings.embeddings, EmbeddingRequest),
    ("POST", "/embed", embeddings.embed, EmbedRequest),
    ("POST", "/v1/rerank", ranking.rerank, RerankRequest),
    ("POST", "/v1/score", ranking.score, ScoreRequest),
    ("POST", "/predict", classifying.predict, PredictRequest),
    ("POST", "/classify", classifying.classify, ClassifyRequest),
    ("POST", "/v1/audio/transcriptions", transcriptions.transcriptions, TranscriptionRequest),
    ("POST", "/v1/audio/translations", transcriptions.translations, TranscriptionRequest),
)

# Other names of a route, by which clients of vLLM, llama.cpp and Cohere ask for it.
_ALIASES = {
    "/rerank": "/v1/rerank",
    "/v1/reranking": "/v1/rerank",
    "/reranking": "/v1/rerank",
    "/v2/rerank": "/v1/rerank",
    "/score": "/v1/score",
}

# Routes that clients may ask for because others have them, and why this server does not.
REFUSED = {
    "/v1/responses/input_tokens": "use /tokenize",
    **dict.fromkeys(
        ("/v1/responses/{id}", "/v1/responses/{id}/{rest:path}"),
        "responses are not stored, so none can be fetched, ended or deleted; keep what POST /v1/responses gave, and "
        "close the connection to end an answer",
    ),
    "/v1/audio/speech": "the server writes text only",
    **dict.fromkeys(
        ("/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete"),
        "the server has the package that it was started with; others are made by `tcim-lite compile`",
    ),
    "/completion": "llama.cpp's own form is not served; use /v1/completions",
    "/embedding": "llama.cpp's own form is not served; use /v1/embeddings",
}


def make_app(service: Service) -> Starlette:
    """The ASGI application of a service; its lifespan ends the service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            service.close()

    by_path: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint, _ in ROUTES:
        by_path.setdefault(path, {})[method] = endpoint
    routes = [
        Route(name, functools.partial(_by_method, service, endpoints), methods=list(endpoints))
        for path, endpoints in by_path.items()
        for name in (path, *(alias for alias, meant in _ALIASES.items() if meant == path))
    ]
    api = openapi.document(ROUTES, has_keys=bool(service.options.api_keys))
    routes.append(Route("/openapi.json", lambda _: JsonResponse(api), methods=["GET"]))
    for path, reason in REFUSED.items():
        routes.append(Route(path, functools.partial(_refuse, reason), methods=["GET", "POST", "DELETE"]))
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[*_cors(service.options), Middleware(Guard, options=service.options)],
        exception_handlers={
            ApiError: _on_api_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_disconnect,
            Exception: _on_failure,
        },
    )


async def _by_method(service: Service, endpoints: Mapping[str, Endpoint], request: Request) -> Response:
    return await endpoints["GET" if request.method == "HEAD" else request.method](service, request)


def _cors(options: ServeOptions) -> list[Middleware]:
    """Before the guard, because a browser asks for the rules without the key. Without origins no page may ask."""
    if not options.cors_origins:
        return []
    shown = ["x-request-id", "retry-after"]
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=options.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=shown,
        )
    ]


async def _refuse(reason: str, request: Request) -> Response:
    raise ApiError(404, f"{request.url.path[:200]}: {reason}", code="unsupported_route")


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    said = f"{request.method} {request.url.path[:200]}: {error.status} {error.message}"
    _log.info("%s", _CONTROL.sub("?", said))
    return error_response(error, request.url.path)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    what = {404: f"there is no such route{_hint(path)}", 405: f"the route takes no {request.method}"}
    message = f"{path[:200]}: {what.get(error.status_code, error.detail)}"
    return error_response(ApiError(error.status_code, message, headers=dict(error.headers or {})), path)


_OTHERS = ("/v1/audio/transcriptions", "/v1/audio/translations")


def _hint(path: str) -> str:
    """For a client whose base URL lacks "/v1", or has it twice."""
    for known in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", "/v1/embeddings", *_OTHERS):
        if path.rstrip("/").endswith(known.removeprefix("/v1")):
            return f"; did you mean {known}? The base URL of a client ends with one /v1"
    return ""


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _on_failure(request: Request, error: Exception) -> Response:
    failed = ApiError(500, "the server failed; its log says why", code="internal_error")
    return error_response(failed, request.url.path)
