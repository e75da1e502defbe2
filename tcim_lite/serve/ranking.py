"""/v1/rerank and /v1/score: how well texts answer a query, by Qwen3-Reranker or by vectors of an embedding model.

Bodies and replies are those of vLLM, and those of Jina and of llama.cpp's server where they are the same.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ..llm.engine import SamplingParams
from .answer_routes import adapter_of
from .embeddings import MOST_TEXTS, first_events, unit, vectors_of
from .errors import ApiError
from .guard import read_body
from .protocol import RerankRequest, ScoreRequest
from .reading import read
from .service import Service
from .shortening import shortened
from .streams import JsonResponse

# What Qwen3-Reranker has learned, which its config does not say; its model card does. Ranks are those of the two
# answers.
_RERANKER, _NO, _YES = "qwen3-reranker", "no", "yes"
_INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
# Names of the two sides of a score.
_SIDES = (("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"), ("queries", "items"))
Pair = tuple[str, str]  # a query and a document


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
    _, scores, tokens = await _scores(service, http, request, pairs, "documents")
    results: list[dict[str, Any]] = []
    for index in np.argsort(-scores, kind="stable")[:top]:
        found = {"index": int(index), "relevance_score": float(scores[index])}
        shown = {"document": {"text": texts[index]}} if request.return_documents is not False else {}
        results.append({**found, **shown})
    return JsonResponse(_body(service, request, "rerank", tokens) | {"results": results})


async def _rerank_texts(service: Service, http: Request, request: RerankRequest, texts: list[str]) -> Response:
    """As Text Embeddings Inference answers: a list, the best first."""
    for name in ("top_n", "return_documents"):
        if getattr(request, name) is not None:
            raise _out_of_place(name, "documents, not with texts")
    raw, scores, _ = await _scores(service, http, request, [(request.query, text) for text in texts], "texts")
    shown = raw if request.raw_scores else scores
    return JsonResponse(
        [
            {"index": int(index), "score": float(shown[index])}
            | ({"text": texts[index]} if request.return_text else {})
            for index in np.argsort(-raw, kind="stable")
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
    _, scores, tokens = await _scores(service, http, request, pairs, of_right)
    data = [{"object": "score", "index": index, "score": float(value)} for index, value in enumerate(scores)]
    return JsonResponse(_body(service, request, "score", tokens) | {"created": int(time.time()), "data": data})


def _body(service: Service, request: RerankRequest | ScoreRequest, kind: str, tokens: int) -> dict[str, Any]:
    return {
        "id": f"{kind}-{uuid.uuid4().hex}",
        "object": "list",
        "model": adapter_of(service, request.model) or service.options.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


async def _scores(
    service: Service, http: Request, request: RerankRequest | ScoreRequest, pairs: Sequence[Pair], field: str
) -> tuple[np.ndarray, np.ndarray, int]:
    """For each pair what ranks it and its score, between 0 and 1 by Qwen3-Reranker; how many tokens were read.

    Raises:
        ApiError: 404: The model ranks nothing. 400: A text that it cannot read; `field` is to blame.
    """
    adapter, slots = adapter_of(service, request.model), service.engines.slots
    if not 1 <= len(pairs) <= MOST_TEXTS:
        raise ApiError(400, f"{field}: {len(pairs)} texts; expected 1 to {MOST_TEXTS}", param=field)
    if slots.hidden_size:
        if request.instruct is not None:
            raise ApiError(400, "instruct: texts are compared as they are; write it into the query", param="instruct")
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        prompts = await _encoded(service, request, [(text, lambda text: text) for text in texts], field, special=True)
        vectors = await vectors_of(service, http, prompts, adapter, field)
        known = dict(zip(texts, map(unit, vectors), strict=True))
        cosines = np.array([known[left] @ known[right] for left, right in pairs])
        return cosines, cosines, sum(map(len, prompts))
    if _RERANKER not in service.options.model.lower().replace("_", "-"):
        raise ApiError(
            404,
            f"{http.url.path}: {service.options.model} ranks nothing. Serve Qwen3-Reranker with --served-model-name "
            f"{_RERANKER}, or an embedding model that was compiled with --hidden-states; cross encoders such as "
            "bge-reranker are networks, which tcim_lite.runtime runs",
            code="unsupported_route",
        )
    answers = tuple(token for word in (_NO, _YES) if (token := service.vocabulary.token_id(word)) is not None)
    if len(answers) < 2:
        raise ApiError(
            404,
            f'{http.url.path}: the tokenizer of {service.options.model} lacks the token "{_NO}" or "{_YES}", between '
            "which Qwen3-Reranker chooses; compile its checkpoint with its own tokenizer",
            code="unsupported_route",
        )
    asked = [(pair[1], functools.partial(_asked, pair[0], request.instruct)) for pair in pairs]
    prompts = await _encoded(service, request, asked, field, special=False)
    params = SamplingParams(max_tokens=1, logprobs=0, logprob_token_ids=answers, ignore_eos=True, adapter=adapter)
    events = await first_events(service, http, prompts, params, field)
    no, yes = np.array([[value for _, value in event.logprobs[0].top] for event in events]).T
    return yes - no, 1 / (1 + np.exp(no - yes)), sum(map(len, prompts))


def _asked(query: str, instruct: str | None, document: str) -> str:
    """The prompt of a pair."""
    if query.startswith("<|im_start|>"):  # a client that writes the prompt itself, in two parts, as for vLLM
        return query + document
    return f"{_BEFORE}<Instruct>: {instruct or _INSTRUCT}\n<Query>: {query}\n<Document>: {document}{_BEHIND}"


async def _encoded(
    service: Service,
    request: RerankRequest | ScoreRequest,
    texts: Sequence[tuple[str, Callable[[str], str]]],
    field: str,
    *,
    special: bool,
) -> list[list[int]]:
    """Tokens of prompts: of each a text, and what becomes of it.

    Raises:
        ApiError: 400: A text that the context cannot hold, unless it is to be cut.
    """
    vocabulary, most = service.vocabulary, service.engines.slots.context_length
    room = most - (not service.engines.slots.hidden_size)  # for the answer
    is_cut, side = getattr(request, "truncate", None), getattr(request, "truncation_direction", None)

    def encode(text: str, made: Callable[[str], str]) -> list[int]:
        if is_cut:
            return shortened(
                vocabulary,
                text,
                lambda kept: vocabulary.encode(made(kept), special=special),
                room,
                keeps_end=side in ("Left", "left"),
            )
        try:
            return vocabulary.encode_prompt(made(text), special=special, most=most)
        except ApiError as error:
            error.param = field
            raise

    return await service.in_thread(lambda: [encode(text, made) for text, made in texts])
