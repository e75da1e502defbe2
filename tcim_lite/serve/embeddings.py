"""/v1/embeddings and /embed: a unit vector of each text.

Encoders make vectors (`tcim_lite.llm.encoders`). Of a language model that was compiled with --hidden-states it is the
hidden states of the last token; as with vLLM and llama.cpp, nothing else is done to them.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ..llm.engine import Event, SamplingParams
from .answer_routes import adapter_of
from .answers import Answers
from .completion import completion_prompts, prompt_count
from .encoder_prompts import Cut
from .errors import ApiError
from .guard import read_body
from .reading import read
from .service import Service
from .shortening import shortened
from .streams import JsonResponse, watching
from .text_protocol import EmbeddingRequest, EmbedRequest

MOST_TEXTS = 2048  # as at OpenAI
_AT_ONCE = 32  # texts of one request in the queue, so that others find room there
_PAUSE_S = 0.05  # before a text is tried again that found the queue full


async def embeddings(service: Service, http: Request) -> Response:
    """POST /v1/embeddings."""
    request = read(EmbeddingRequest, await read_body(http, service.options.max_body_bytes))
    adapter = adapter_of(service, request.model)
    size = vector_size(service, http, request.dimensions)
    if (count := prompt_count(request.input)) > MOST_TEXTS:
        raise ApiError(400, f"input: {count} texts; expected at most {MOST_TEXTS}", param="input")
    most = service.engines.slots.context_length
    prompts = await service.in_thread(
        lambda: completion_prompts(request.input, service.vocabulary, most, field="input")
    )
    vectors = await vectors_of(service, http, prompts, adapter)
    in_base64 = request.encoding_format == "base64"
    tokens = sum(map(len, prompts))
    return JsonResponse(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": _shown(unit(vector[:size]), in_base64)}
                for index, vector in enumerate(vectors)
            ],
            "model": adapter or service.options.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


async def embed(service: Service, http: Request) -> Response:
    """POST /embed, of Text Embeddings Inference: a list of vectors."""
    request = read(EmbedRequest, await read_body(http, service.options.max_body_bytes))
    adapter, size = adapter_of(service, request.model), vector_size(service, http, request.dimensions)
    texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise ApiError(400, f"inputs: {len(texts)} texts; expected 1 to {MOST_TEXTS}", param="inputs")
    if request.prompt_name is not None:
        before = _prompt_named(service, request.prompt_name)
        texts = [before + text for text in texts]
    cut = Cut.of(request.truncate, request.truncation_direction)
    prompts = await service.in_thread(lambda: text_prompts(service, texts, cut, "inputs"))
    vectors = await vectors_of(service, http, prompts, adapter, "inputs")
    made = [vector[:size] if request.normalize is False else unit(vector[:size]) for vector in vectors]
    return JsonResponse([_shown(vector, in_base64=False) for vector in made])


def text_prompts(service: Service, texts: Sequence[str], cut: Cut, field: str) -> list[list[int]]:
    """The tokens of each text; raises as `completion_prompts` for one that is too long and not to be cut."""
    vocabulary, most = service.vocabulary, service.engines.slots.context_length

    def encode(text: str) -> list[int]:
        return vocabulary.encode(text, special=True)

    if cut.truncate:
        return [shortened(vocabulary, text, encode, most, keeps_end=cut.keeps_end) for text in texts]
    return completion_prompts(list(texts), vocabulary, most, field=field)


def _prompt_named(service: Service, name: str) -> str:
    """The text that sentence-transformers puts before a text for a prompt of that name.

    Raises:
        ApiError: 400: There is none.
    """
    prompts = {} if service.encoder is None else service.encoder.facts.prompts
    if name not in prompts:
        known = ", ".join(prompts) or "none"
        raise ApiError(400, f"prompt_name={name!r:.80}: the model's prompts are {known}", param="prompt_name")
    if service.encoder is not None and not service.encoder.facts.pools_prompt:
        raise ApiError(
            400, f"prompt_name={name!r:.80}: the model leaves prompts out of its pooling, which is not done here"
        )
    return prompts[name]


def vector_size(service: Service, http: Request, dimensions: int | None) -> int:
    """How long vectors are.

    Raises:
        ApiError: 404: The package makes none. 400: They are not as long.
    """
    most = service.engines.slots.hidden_size
    if service.encoder is not None and not most:
        raise ApiError(
            404,
            f"{http.url.path}: {service.options.model} gives scores, no embeddings; use /rerank, /v1/score, /predict "
            "or /classify",
            code="unsupported_route",
        )
    if not most:
        raise ApiError(
            404,
            f"{http.url.path}: the graphs of this package give logits, no embeddings; serve an embedding model that "
            "was compiled with --hidden-states, or from ONNX",
            code="unsupported_route",
        )
    size = most if dimensions is None else dimensions
    if not 1 <= size <= most:
        raise ApiError(400, f"dimensions={size}: expected 1 to {most}", param="dimensions", code="invalid_value")
    return size


async def vectors_of(
    service: Service, http: Request, prompts: Sequence[Sequence[int]], adapter: str | None, field: str = "input"
) -> list[np.ndarray]:
    """What the package gives for each prompt: a vector, or scores; raises as `first_events`."""
    events = await first_events(service, http, prompts, SamplingParams(max_tokens=0, adapter=adapter), field)
    return [event.hidden for event in events if event.hidden is not None]


async def first_events(
    service: Service, http: Request, prompts: Sequence[Sequence[int]], params: SamplingParams, field: str
) -> list[Event]:
    """What the engine first says of each prompt, however many there are.

    A queue that is full when the request comes refuses it. Later its texts wait, each for room of its own.

    Raises:
        ApiError: As `Answers`, with `field` to blame.
        ClientDisconnect: The client has left.
    """
    found: dict[int, Event] = {}
    most = at_once = int(min(_AT_ONCE, service.engines.capacity))
    running: Answers | None = None
    has_left = False
    loop = asyncio.get_running_loop()
    deadline = loop.time() + service.options.timeout_s

    def gone() -> None:
        nonlocal has_left
        has_left = True
        if running is not None:
            running.abort()

    async with watching(http.receive, gone):
        begin = 0
        while begin < len(prompts):
            if has_left:
                raise ClientDisconnect
            running = Answers(service.engines, service.metrics, service.options.timeout_s)
            group = prompts[begin : begin + at_once]
            try:
                await running.submit(service.executor, group, params, 1)
            except ApiError as error:
                if error.code == "queue_full" and (len(group) > 1 or (begin and loop.time() < deadline)):
                    await asyncio.sleep(_PAUSE_S)  # what was queued of the group leaves
                    at_once = max(1, len(group) // 2)
                    continue
                error.param = field if error.status == 400 else None
                raise
            async for item in running.events(3600.0):
                if item is not None:
                    found.setdefault(begin + item[0], item[1])
            begin, at_once = begin + len(group), min(most, 2 * at_once)
    return [found[index] for index in range(len(prompts))]


def unit(values: np.ndarray) -> np.ndarray:
    """The vector of length 1 in this direction, in float64.

    Raises:
        ApiError: 500: It is not finite.
    """
    vector = values.astype(np.float64)
    length = float(np.sqrt(vector @ vector))
    if not np.isfinite(length):
        raise ApiError(500, "the answer failed: a hidden state is not finite", code="engine_error")
    return vector / length if length else vector


def _shown(vector: np.ndarray, in_base64: bool) -> Any:
    """As numbers or as float32 in base64."""
    vector = vector.astype("<f4")
    return base64.b64encode(vector.tobytes()).decode() if in_base64 else vector.tolist()
