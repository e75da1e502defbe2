"""Ollama's API: /api/chat, /api/generate, /api/embed, and what tells of the model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from time import perf_counter_ns
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from ..llm.engine import SamplingParams
from .answer_routes import adapter_of, answer, answer_chat
from .answers import utc_now
from .chat import ChatReply
from .completion import completion_prompts
from .embeddings import MOST_TEXTS, text_prompts, unit, vector_size, vectors_of
from .encoder_prompts import Cut
from .errors import ApiError
from .guard import read_body
from .ollama_input import chat_of_ollama, chat_of_prompt, completion_of, named_as_ollama
from .ollama_protocol import (
    OllamaChatRequest,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    OllamaShowRequest,
)
from .ollama_writer import OllamaWriter
from .protocol import ChatRequest
from .reading import read
from .sampling import completion_params
from .service import Service
from .streams import JsonResponse, LineStream, Writer
from .usage import UsageCount


async def chat(service: Service, http: Request) -> Response:
    """POST /api/chat."""
    begun = perf_counter_ns()
    asked = read(OllamaChatRequest, await read_body(http, service.options.max_body_bytes))
    adapter = _model(service, asked.model)
    service.check_writes()
    if not asked.messages:
        return _loaded(asked.model, {"message": {"role": "assistant", "content": ""}})
    with named_as_ollama():
        return await _chat(service, http, chat_of_ollama(asked), asked.model, adapter, begun, is_chat=True)


async def generate(service: Service, http: Request) -> Response:
    """POST /api/generate."""
    begun = perf_counter_ns()
    asked = read(OllamaGenerateRequest, await read_body(http, service.options.max_body_bytes))
    adapter = _model(service, asked.model)
    service.check_writes()
    if not asked.prompt:
        return _loaded(asked.model, {"response": ""})
    with named_as_ollama():
        if not asked.raw:
            return await _chat(service, http, chat_of_prompt(asked), asked.model, adapter, begun, is_chat=False)
        request = completion_of(asked)
        params = replace(completion_params(request, service.defaults), adapter=adapter)
        if request.max_tokens is None:
            params = replace(params, max_tokens=None)  # /v1/completions stops after 16
        most = service.engines.slots.context_length
        prompts = await service.in_thread(lambda: completion_prompts(asked.prompt, service.vocabulary, most))

        def writer(usage: UsageCount) -> Writer:
            return OllamaWriter(None, False, usage, asked.model, begun)

        return await answer(service, http, request, prompts, params, 1, writer, LineStream)


async def _chat(
    service: Service, http: Request, request: ChatRequest, model: str, adapter: str | None, begun: int, *, is_chat: bool
) -> Response:
    def writer(reply: ChatReply, _: SamplingParams, usage: UsageCount) -> Writer:
        return OllamaWriter(reply, is_chat, usage, model, begun)

    return await answer_chat(service, http, request, adapter, writer, stream=LineStream)


def _model(service: Service, name: str) -> str | None:
    """As `adapter_of`; a name may have Ollama's tag for what has none.

    Raises:
        ApiError: 404, 503 at shutdown.
    """
    return adapter_of(service, name.removesuffix(":latest") or name)


def _loaded(model: str, empty: dict[str, Any]) -> Response:
    """The answer to no question, by which clients have a model loaded; it is."""
    return JsonResponse({"model": model, "created_at": utc_now(), **empty, "done": True, "done_reason": "load"})


async def embed(service: Service, http: Request) -> Response:
    """POST /api/embed."""
    begun = perf_counter_ns()
    asked = read(OllamaEmbedRequest, await read_body(http, service.options.max_body_bytes))
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    cut = Cut(asked.truncate is not False)
    vectors, tokens = await _vectors(service, http, asked.model, texts, asked.dimensions, cut, "input")
    return JsonResponse(
        {
            "model": asked.model,
            "embeddings": vectors,
            "total_duration": perf_counter_ns() - begun,
            "load_duration": 0,
            "prompt_eval_count": tokens,
        }
    )


async def embeddings(service: Service, http: Request) -> Response:
    """POST /api/embeddings, the form before /api/embed."""
    asked = read(OllamaEmbeddingsRequest, await read_body(http, service.options.max_body_bytes))
    vectors, _ = await _vectors(service, http, asked.model, [asked.prompt], None, Cut(True), "prompt")
    return JsonResponse({"embedding": vectors[0]})


async def _vectors(
    service: Service, http: Request, model: str, texts: Sequence[str], dimensions: int | None, cut: Cut, field: str
) -> tuple[list[list[float]], int]:
    adapter, size = _model(service, model), vector_size(service, http, dimensions)
    if len(texts) > MOST_TEXTS:
        raise ApiError(400, f"{field}: {len(texts)} texts; expected at most {MOST_TEXTS}", param=field)
    prompts = await service.in_thread(lambda: text_prompts(service, texts, cut, field))
    made = await vectors_of(service, http, prompts, adapter, field)
    return [unit(vector[:size]).astype("<f4").tolist() for vector in made], sum(map(len, prompts))


async def tags(service: Service, http: Request) -> Response:
    """GET /api/tags: the model and its adapters."""
    return JsonResponse({"models": await service.in_thread(lambda: _entries(service))})


async def running(service: Service, http: Request) -> Response:
    """GET /api/ps: the same, because all are loaded."""
    loaded = {
        "size_vram": 0,
        "expires_at": "9999-12-31T23:59:59Z",
        "context_length": service.engines.slots.context_length,
    }
    entries = await service.in_thread(lambda: _entries(service))
    return JsonResponse({"models": [entry | loaded for entry in entries]})


async def show(service: Service, http: Request) -> Response:
    """POST /api/show: what is known of the model."""
    asked = read(OllamaShowRequest, await read_body(http, service.options.max_body_bytes))
    if (name := asked.model or asked.name) is None:
        raise ApiError(400, "model: missing", param="model")
    _model(service, name)
    family = service.family
    return JsonResponse(
        {
            "modelfile": "",
            "parameters": "",
            "template": service.template.source if service.template else "",
            "details": _details(service),
            "model_info": {
                "general.architecture": family,
                f"{family}.context_length": service.engines.slots.context_length,
                f"{family}.vocab_size": service.engines.slots.vocab_size,
            },
            "capabilities": _capabilities(service),
            "modified_at": _modified(service),
        }
    )


async def version(service: Service, http: Request) -> Response:
    """GET /api/version."""
    return JsonResponse({"version": __version__})


def _capabilities(service: Service) -> list[str]:
    if service.engines.slots.hidden_size:
        return ["embedding"]
    if service.encoder is not None:
        return []
    source = service.template.source if service.template else ""
    found = {
        "completion": True,
        "vision": not isinstance(service.images, str),
        "audio": not isinstance(service.sounds, str),
        "tools": "tools" in source,
        "thinking": "enable_thinking" in source or "reasoning_effort" in source,
    }
    return [name for name, has in found.items() if has]


def _entries(service: Service) -> list[dict[str, Any]]:
    """Looks at every file of the package."""
    files = [path for path in service.folder.rglob("*") if path.is_file()]
    size = sum({path.stat().st_ino: path.stat().st_size for path in files}.values())
    names = (service.options.model, *service.engines.slots.adapters.names)
    return [
        {
            "name": name,
            "model": name,
            "modified_at": _modified(service),
            "size": size,
            "digest": hashlib.sha256(f"{name} {size} {_modified(service)}".encode()).hexdigest(),
            "details": _details(service),
        }
        for name in names
    ]


def _details(service: Service) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "hmm",
        "family": service.family,
        "families": [service.family],
        "parameter_size": "",
        "quantization_level": "",
    }


def _modified(service: Service) -> str:
    return datetime.fromtimestamp(service.folder.stat().st_mtime, timezone.utc).isoformat().replace("+00:00", "Z")
