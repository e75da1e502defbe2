"""What Text Embeddings Inference has besides its routes by name: one route for all, and what is known of the model."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from .answer_routes import adapter_of
from .classifying import predict
from .embeddings import MOST_TEXTS, embed
from .errors import ApiError
from .ranking import rerank
from .service import Service
from .streams import JsonResponse


async def root(service: Service, http: Request) -> Response:
    """POST /: what the model is for, by its kind: /embed, /rerank or /predict. Clients of Hugging Face's hub ask so."""
    kind = _kind(service)
    if kind is None:
        adapter_of(service, None)
        raise ApiError(
            404,
            f"/: {service.options.model} is neither an embedding model nor a reranker or classifier, for which this "
            "route is; use /v1/chat/completions or /v1/completions",
            code="unsupported_route",
        )
    return await {"embedding": embed, "reranker": rerank, "classifier": predict}[kind](service, http)


async def info(service: Service, http: Request) -> Response:
    """GET /info: what does not change while the server runs, by the names of Text Embeddings Inference."""
    kind, encoder = _kind(service), service.encoder
    about: dict[str, Any] = {}
    if encoder is not None and encoder.ranks:
        labels = {str(number): label for number, label in enumerate(encoder.labels)}
        about = {"id2label": labels, "label2id": {label: int(number) for number, label in labels.items()}}
    elif kind is not None:
        about = {"pooling": ",".join(encoder.facts.pooling) if encoder else "lasttoken"}
    return JsonResponse(
        {
            "model_id": service.options.model,
            "model_type": {kind: about} if kind else {"generation": about},
            "max_input_length": service.engines.slots.context_length,
            "max_client_batch_size": MOST_TEXTS,
            "max_batch_requests": len(service.engines.snapshot()),
            "auto_truncate": False,
            "version": __version__,
        }
    )


def _kind(service: Service) -> str | None:
    """Either "embedding", "reranker" or "classifier"; None for a model that writes."""
    if service.encoder is not None and service.encoder.ranks:
        return "reranker" if service.encoder.width == 1 else "classifier"
    return "embedding" if service.engines.slots.hidden_size else None
