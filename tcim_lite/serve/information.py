"""Routes that tell something and make the engine do nothing."""

from __future__ import annotations

from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .. import __version__
from .answer_routes import adapter_of
from .answers import now, utc_now
from .chat import prompt_text
from .errors import ApiError
from .guard import read_body
from .media_parts import ChatMedia
from .protocol import DetokenizeRequest, TemplateRequest, TokenizeRequest
from .reading import read
from .service import Service
from .streams import JsonResponse

_STARTED, _STARTED_UTC = now(), utc_now()


async def page(service: Service, http: Request) -> Response:
    """GET /: a page that chats and shows the slots."""
    # 'unsafe-inline': script and style are in the page itself, and it shows text only as text.
    policy = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


async def health(service: Service, http: Request) -> Response:
    """GET /health: 200, or 503 while the server ends or when the engine has ended."""
    if not service.engines.is_alive and not service.is_closing:
        return JsonResponse({"status": "error: the engine has ended; start the server again"}, 503)
    return JsonResponse({"status": "closing" if service.is_closing else "ok"}, 503 if service.is_closing else 200)


async def version(service: Service, http: Request) -> Response:
    """GET /version."""
    return JsonResponse({"version": __version__})


async def metrics(service: Service, http: Request) -> Response:
    """GET /metrics."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def models(service: Service, http: Request) -> Response:
    """GET /v1/models, and /v1/models/NAME."""
    name = http.path_params.get("name") or None  # "/v1/models/" is the list
    if name is None:
        entries = [_entry(service, adapter) for adapter in (None, *service.engines.slots.adapters.names)]
        ends = {"has_more": False, "first_id": entries[0]["id"], "last_id": entries[-1]["id"]}  # Anthropic's
        return JsonResponse({"object": "list", "data": entries, **ends})
    return JsonResponse(_entry(service, adapter_of(service, name)))


def _entry(service: Service, adapter: str | None) -> dict[str, Any]:
    """What /v1/models says of an adapter, or of the base model; vLLM calls the latter its parent."""
    base = service.options.model
    return {
        "id": adapter or base,
        "object": "model",
        "created": _STARTED,
        "owned_by": "tcim-lite",
        "type": "model",  # this and the next two are Anthropic's
        "display_name": adapter or base,
        "created_at": _STARTED_UTC,
        "parent": None if adapter is None else base,
        "max_model_len": service.engines.slots.context_length,
        "architecture": {"input_modalities": _inputs(service), "output_modalities": ["text"]},
    }


def _inputs(service: Service) -> list[str]:
    found = {"image": service.images, "audio": service.sounds}
    return ["text", *(name for name, opened in found.items() if not isinstance(opened, str))]


async def slots(service: Service, http: Request) -> Response:
    """GET /slots: what every slot does."""
    return JsonResponse(
        [
            {
                "id": slot["slot"],
                "state": slot["state"],
                "is_processing": slot["request"] is not None,
                "n_rows": slot["rows"],
                "n_ctx": service.engines.slots.context_length,
                "replica": slot["replica"],
            }
            for slot in service.engines.snapshot()
        ]
    )


async def props(service: Service, http: Request) -> Response:
    """GET /props: what does not change while the server runs."""
    engines, defaults = service.engines, service.defaults
    return JsonResponse(
        {
            "model": service.options.model,
            "total_slots": len(engines.snapshot()),
            "n_ctx": engines.slots.context_length,
            "prefill_length": engines.slots.chunk_length,
            "vocab_size": engines.slots.vocab_size,
            "modalities": {"vision": "image" in _inputs(service), "audio": "audio" in _inputs(service)},
            "chat_template": service.template.source if service.template else None,
            "stop_tokens": sorted(engines.stop_tokens),
            "default_generation_settings": {
                name: getattr(defaults, name)
                for name in ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")
            },
            "build_info": f"tcim-lite {__version__}",
        }
    )


async def tokenize(service: Service, http: Request) -> Response:
    """POST /tokenize: token ids of a text or a conversation."""
    request = read(TokenizeRequest, await read_body(http, service.options.max_body_bytes))
    adapter_of(service, request.model)
    text = request.content if request.prompt is None else request.prompt
    if (text is None) == (request.messages is None):
        raise ApiError(400, "expected one of prompt and messages", param="prompt")
    special = request.add_special_tokens if request.add_special is None else request.add_special

    most = service.engines.slots.context_length

    def encode() -> list[int]:
        if request.messages is None:
            return service.vocabulary.encode(text or "", special=special)
        media = ChatMedia(service.images, service.sounds, most)
        media.read(request.messages)
        arguments = (service.template, request.messages, request.tools, request.chat_template_kwargs)
        chat = media.expand(prompt_text(*arguments, marks=media.marks), request.messages)
        return service.vocabulary.encode(chat, special=False)

    tokens = await service.in_thread(encode)
    return JsonResponse({"tokens": tokens, "count": len(tokens), "max_model_len": most})


async def apply_template(service: Service, http: Request) -> Response:
    """POST /apply-template: the prompt that a conversation becomes."""
    request = read(TemplateRequest, await read_body(http, service.options.max_body_bytes))
    adapter_of(service, request.model)
    arguments = (service.template, request.messages, request.tools, request.chat_template_kwargs)
    marks = ChatMedia(service.images, service.sounds, service.engines.slots.context_length).marks
    return JsonResponse({"prompt": await service.in_thread(lambda: prompt_text(*arguments, marks=marks))})


async def detokenize(service: Service, http: Request) -> Response:
    """POST /detokenize: the text of token ids, special tokens included."""
    request = read(DetokenizeRequest, await read_body(http, service.options.max_body_bytes))
    adapter_of(service, request.model)
    size = service.engines.slots.vocab_size
    bad = next((token for token in request.tokens if not 0 <= token < size), None)
    if bad is not None:
        raise ApiError(400, f"token {bad} is outside the vocabulary of {size}", param="tokens")
    text = await service.in_thread(lambda: service.vocabulary.decode(request.tokens, skip_special_tokens=False))
    return JsonResponse({"prompt": text, "content": text})
