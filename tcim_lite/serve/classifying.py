"""/predict and /classify: how likely each label is of a text, by a classifier that was compiled from ONNX."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from ..llm.encoders import Encoder
from ..llm.encoders.activations import sigmoid
from .answer_routes import adapter_of
from .answers import now
from .completion import completion_prompts, prompt_count
from .embeddings import MOST_TEXTS, text_prompts
from .encoder_prompts import Cut, pair_prompt
from .errors import ApiError
from .guard import read_body
from .rank_scores import scores_of
from .reading import read
from .service import Service
from .streams import JsonResponse
from .text_protocol import ClassifyRequest, PredictRequest

_Inputs = str | list[str | list[str]]
Texts = tuple[str, ...]  # one, or a pair


async def predict(service: Service, http: Request) -> Response:
    """POST /predict, of Text Embeddings Inference: labels and scores, the most likely first."""
    request = read(PredictRequest, await read_body(http, service.options.max_body_bytes))
    adapter_of(service, request.model)
    encoder = _classifier(service, http)
    inputs, is_batch = _inputs(request.inputs)
    cut = Cut.of(request.truncate, request.truncation_direction)
    prompts = await service.in_thread(lambda: [_prompt(service, texts, cut) for texts in inputs])
    logits = await scores_of(service, http, prompts, "inputs")
    shown = logits if request.raw_scores else _likely(encoder, logits)
    made = [
        [{"score": float(row[index]), "label": encoder.labels[index]} for index in np.argsort(-row, kind="stable")]
        for row in shown
    ]
    return JsonResponse(made if is_batch else made[0])


async def classify(service: Service, http: Request) -> Response:
    """POST /classify, of vLLM: the most likely label of each text, and how likely all are."""
    request = read(ClassifyRequest, await read_body(http, service.options.max_body_bytes))
    adapter_of(service, request.model)
    encoder = _classifier(service, http)
    if not 1 <= (count := prompt_count(request.input)) <= MOST_TEXTS:
        raise ApiError(400, f"input: {count} texts; expected 1 to {MOST_TEXTS}", param="input")
    most = service.engines.slots.context_length
    prompts = await service.in_thread(
        lambda: completion_prompts(request.input, service.vocabulary, most, field="input")
    )
    likely = _likely(encoder, await scores_of(service, http, prompts, "input"))
    tokens = sum(map(len, prompts))
    return JsonResponse(
        {
            "id": f"classify-{uuid.uuid4().hex}",
            "object": "list",
            "created": now(),
            "model": service.options.model,
            "data": [
                {
                    "index": index,
                    "label": encoder.labels[int(row.argmax())],
                    "probs": row.tolist(),
                    "num_classes": encoder.width,
                }
                for index, row in enumerate(likely)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
        }
    )


def _classifier(service: Service, http: Request) -> Encoder:
    if service.encoder is None or not service.encoder.ranks:
        raise ApiError(
            404,
            f"{http.url.path}: {service.options.model} has no labels; serve a classifier or cross encoder that was "
            "compiled from ONNX",
            code="unsupported_route",
        )
    return service.encoder


def _inputs(given: _Inputs) -> tuple[list[Texts], bool]:
    """One text, one pair, or a list of lists of one or two texts; whether it is the last.

    Raises:
        ApiError: It is something else.
    """
    if isinstance(given, str):
        return [(given,)], False
    single = [item for item in given if isinstance(item, str)]
    lists = [tuple(item) for item in given if not isinstance(item, str)]
    if len(single) == len(given) and len(given) in (1, 2):
        return [tuple(single)], False
    if single or not all(len(texts) in (1, 2) for texts in lists) or not 1 <= len(lists) <= MOST_TEXTS:
        raise ApiError(
            400,
            "inputs: expected a text, a pair of texts, or a list of lists of one or two texts, such as "
            f'[["a text"], ["one", "another"]], at most {MOST_TEXTS}',
            param="inputs",
            code="invalid_type",
        )
    return lists, True


def _prompt(service: Service, texts: Texts, cut: Cut) -> Sequence[int]:
    if len(texts) == 2:
        most = service.engines.slots.context_length
        return pair_prompt(service.vocabulary, texts[0], texts[1], most, cut, "inputs")
    return text_prompts(service, texts, cut, "inputs")[0]


def _likely(encoder: Encoder, logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """From logits [texts, labels] to what is shown, by the kind of problem that config.json names.

    Without a kind, a single label has a probability of its own, and of several one is right.
    """
    kind = encoder.facts.problem_type
    if kind == "regression":
        return logits
    if kind == "multi_label_classification" or encoder.width == 1:
        return sigmoid(logits)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
