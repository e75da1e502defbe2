"""How well texts answer queries: by a cross encoder, by vectors of an embedding model, or by Qwen3-Reranker."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from ..llm.encoders.activations import ACTIVATIONS, sigmoid
from ..llm.engine import SamplingParams
from .embeddings import MOST_TEXTS, first_events, unit, vectors_of
from .encoder_prompts import NO_CUT, Cut, pair_prompt
from .errors import ApiError
from .service import Service
from .shortening import shortened

# What Qwen3-Reranker has learned, which its config does not say; its model card does. Ranks are those of the two
# answers.
_RERANKER, _NO, _YES = "qwen3-reranker", "no", "yes"
_INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
Pair = tuple[str, str]  # a query and a document


@dataclass(frozen=True)
class Ranks:
    """Of each pair, [n] float64.

    Attributes:
        raw: what the model gives: a logit, or the cosine of two vectors.
        score: the same as vLLM shows it, by the activation that the config of a cross encoder names.
        probability: the same as Text Embeddings Inference shows it, by a sigmoid.
        tokens: how many were read.
    """

    raw: NDArray[np.float64]
    score: NDArray[np.float64]
    probability: NDArray[np.float64]
    tokens: int


async def ranks_of(
    service: Service,
    http: Request,
    pairs: Sequence[Pair],
    field: str,
    *,
    adapter: str | None = None,
    instruct: str | None = None,
    cut: Cut = NO_CUT,
) -> Ranks:
    """How well the second of each pair answers the first.

    Raises:
        ApiError: 404: The model ranks nothing. 400: A text that it cannot read; `field` is to blame.
    """
    slots, encoder = service.engines.slots, service.encoder
    if not 1 <= len(pairs) <= MOST_TEXTS:
        raise ApiError(400, f"{field}: {len(pairs)} texts; expected 1 to {MOST_TEXTS}", param=field)
    if (slots.hidden_size or encoder is not None) and instruct is not None:
        raise ApiError(400, "instruct: texts are compared as they are; write it into the query", param="instruct")
    if encoder is not None and encoder.ranks:
        return await _of_cross_encoder(service, http, pairs, field, cut)
    if slots.hidden_size:
        return await _of_vectors(service, http, pairs, field, adapter, cut)
    return await _of_answers(service, http, pairs, field, adapter, instruct, cut)


async def _of_cross_encoder(service: Service, http: Request, pairs: Sequence[Pair], field: str, cut: Cut) -> Ranks:
    encoder, most = service.encoder, service.engines.slots.context_length
    assert encoder is not None
    if encoder.width != 1:
        raise ApiError(
            404,
            f"{http.url.path}: {service.options.model} gives {encoder.width} scores of a text, so it is a classifier, "
            "not a cross encoder; use /predict or /classify",
            code="unsupported_route",
        )
    prompts = await service.in_thread(
        lambda: [pair_prompt(service.vocabulary, left, right, most, cut, field) for left, right in pairs]
    )
    raw = np.array([scores[0] for scores in await scores_of(service, http, prompts, field)])
    made = ACTIVATIONS[encoder.facts.activation](raw)
    return Ranks(raw, made, sigmoid(raw), sum(map(len, prompts)))


async def scores_of(
    service: Service, http: Request, prompts: Sequence[Sequence[int]], field: str
) -> NDArray[np.float64]:
    """The scores of an encoder, [prompts, labels]; raises as `first_events`, and ApiError if they are not finite."""
    made = np.stack(await vectors_of(service, http, prompts, None, field)).astype(np.float64)
    if not np.isfinite(made).all():
        raise ApiError(500, "the answer failed: a score is not finite", code="engine_error")
    return made


async def _of_vectors(
    service: Service, http: Request, pairs: Sequence[Pair], field: str, adapter: str | None, cut: Cut
) -> Ranks:
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    prompts = await _encoded(service, [(text, lambda text: text) for text in texts], field, cut, special=True)
    vectors = await vectors_of(service, http, prompts, adapter, field)
    known = dict(zip(texts, map(unit, vectors), strict=True))
    cosines = np.array([known[left] @ known[right] for left, right in pairs])
    return Ranks(cosines, cosines, cosines, sum(map(len, prompts)))


async def _of_answers(
    service: Service,
    http: Request,
    pairs: Sequence[Pair],
    field: str,
    adapter: str | None,
    instruct: str | None,
    cut: Cut,
) -> Ranks:
    """By Qwen3-Reranker."""
    if _RERANKER not in service.options.model.lower().replace("_", "-"):
        raise ApiError(
            404,
            f"{http.url.path}: {service.options.model} ranks nothing. Serve a cross encoder such as bge-reranker that "
            f"was compiled from ONNX, Qwen3-Reranker with --served-model-name {_RERANKER}, or an embedding model that "
            "was compiled with --hidden-states",
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
    asked = [(pair[1], functools.partial(_asked, pair[0], instruct)) for pair in pairs]
    prompts = await _encoded(service, asked, field, cut, special=False)
    params = SamplingParams(max_tokens=1, logprobs=0, logprob_token_ids=answers, ignore_eos=True, adapter=adapter)
    events = await first_events(service, http, prompts, params, field)
    no, yes = np.array([[value for _, value in event.logprobs[0].top] for event in events]).T
    probability = sigmoid(yes - no)
    return Ranks(yes - no, probability, probability, sum(map(len, prompts)))


def _asked(query: str, instruct: str | None, document: str) -> str:
    """The prompt of a pair."""
    if query.startswith("<|im_start|>"):  # a client that writes the prompt itself, in two parts, as for vLLM
        return query + document
    return f"{_BEFORE}<Instruct>: {instruct or _INSTRUCT}\n<Query>: {query}\n<Document>: {document}{_BEHIND}"


async def _encoded(
    service: Service, texts: Sequence[tuple[str, Callable[[str], str]]], field: str, cut: Cut, *, special: bool
) -> list[list[int]]:
    """Tokens of prompts: of each a text, and what becomes of it.

    Raises:
        ApiError: 400: A text that the context cannot hold, unless it is to be cut.
    """
    vocabulary, most = service.vocabulary, service.engines.slots.context_length
    room = most - (not service.engines.slots.hidden_size)  # for the answer

    def encode(text: str, made: Callable[[str], str]) -> list[int]:
        if cut.truncate:
            return shortened(
                vocabulary,
                text,
                lambda kept: vocabulary.encode(made(kept), special=special),
                room,
                keeps_end=cut.keeps_end,
            )
        try:
            return vocabulary.encode_prompt(made(text), special=special, most=most)
        except ApiError as error:
            error.param = field
            raise

    return await service.in_thread(lambda: [encode(text, made) for text, made in texts])
