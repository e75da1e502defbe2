"""/v1/rerank and /v1/score: how well texts answer a query (rank_scores.py).

Bodies and replies are those of vLLM, and those of Jina and of llama.cpp's server where they are the same.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from .answer_routes import adapter_of
from .answers import now
from .encoder_prompts import Cut
from .errors import ApiError
from .guard import read_body
from .rank_scores import ranks_of
from .reading import read
from .service import Service
from .streams import JsonResponse
from .text_protocol import RerankRequest, ScoreRequest

# Names of the two sides of a score.
_SIDES = (("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"), ("queries", "items"))


async def rerank(service: Service, http: Request) -> Response:
    """POST /v1/rerank: documents, the best first."""
    request = read(RerankRequest, await read_body(http, service.options.max_body_bytes))
    top = request.top_n or None  # 0 is all of them, as in vLLM
    if top is not None and top < 0:
        raise ApiError(400, f"top_n={top}: expected 1 or more, or 0 for all", param="top_n", code="invalid_value")
    if (request.documents is None) == (request.texts is None):
        raise ApiError(
            400,
            "documents: missing, or there are texts too; expected one of them",
            param="documents",
            code="invalid_type",
        )
    if request.texts is not None:
        return await _rerank_texts(service, http, request, request.texts)
    _only_of_texts(request)
    given = [request.documents] if isinstance(request.documents, str) else request.documents or []
    texts = [document if isinstance(document, str) else document.text for document in given]
    pairs = [(request.query, text) for text in texts]
    adapter = adapter_of(service, request.model)
    ranks = await ranks_of(service, http, pairs, "documents", adapter=adapter, instruct=request.instruct)
    results: list[dict[str, Any]] = []
    for index in np.argsort(-ranks.raw, kind="stable")[:top]:
        found = {"index": int(index), "relevance_score": float(ranks.score[index])}
        shown = {"document": {"text": texts[index]}} if request.return_documents is not False else {}
        results.append({**found, **shown})
    return JsonResponse(_body(service, adapter, "rerank", ranks.tokens) | {"results": results})


async def _rerank_texts(service: Service, http: Request, request: RerankRequest, texts: list[str]) -> Response:
    """As Text Embeddings Inference answers: a list, the best first."""
    for name in ("top_n", "return_documents"):
        if getattr(request, name) is not None:
            raise _out_of_place(name, "documents, not with texts")
    ranks = await ranks_of(
        service,
        http,
        [(request.query, text) for text in texts],
        "texts",
        adapter=adapter_of(service, request.model),
        instruct=request.instruct,
        cut=Cut.of(request.truncate, request.truncation_direction),
    )
    shown = ranks.raw if request.raw_scores else ranks.probability
    return JsonResponse(
        [
            {"index": int(index), "score": float(shown[index])}
            | ({"text": texts[index]} if request.return_text else {})
            for index in np.argsort(-ranks.raw, kind="stable")
        ]
    )


def _only_of_texts(request: RerankRequest) -> None:
    """Refuses fields that go with `texts`.

    Raises:
        ApiError: 400.
    """
    for name in ("raw_scores", "return_text", "truncate", "truncation_direction"):
        if getattr(request, name) not in (None, False):
            raise _out_of_place(name, "texts, not with documents")


def _out_of_place(name: str, why: str) -> ApiError:
    return ApiError(400, f"{name}: goes with {why}", param=name, code="unsupported_parameter")


async def score(service: Service, http: Request) -> Response:
    """POST /v1/score: a number for each pair of texts."""
    request = read(ScoreRequest, await read_body(http, service.options.max_body_bytes))
    given = {name for names in _SIDES for name in names if getattr(request, name) is not None}
    if (sides := next((names for names in _SIDES if given == set(names)), None)) is None:
        expected = ", or ".join(" and ".join(names) for names in _SIDES)
        raise ApiError(
            400, f"got {' and '.join(sorted(given)) or 'no texts'}; expected {expected}", code="invalid_type"
        )
    left, right = ([text] if isinstance(text, str) else text for text in (getattr(request, name) for name in sides))
    of_left, of_right = sides
    if len(left) not in (1, len(right)):
        raise ApiError(
            400, f"{of_left}: {len(left)} texts for {len(right)} of {of_right}; expected one, or as many", param=of_left
        )
    pairs = list(zip(left * (len(right) if len(left) == 1 else 1), right, strict=True))
    adapter = adapter_of(service, request.model)
    ranks = await ranks_of(service, http, pairs, of_right, adapter=adapter, instruct=request.instruct)
    data = [{"object": "score", "index": index, "score": float(value)} for index, value in enumerate(ranks.score)]
    return JsonResponse(_body(service, adapter, "score", ranks.tokens) | {"created": now(), "data": data})


def _body(service: Service, adapter: str | None, kind: str, tokens: int) -> dict[str, Any]:
    return {
        "id": f"{kind}-{uuid.uuid4().hex}",
        "object": "list",
        "model": adapter or service.options.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
