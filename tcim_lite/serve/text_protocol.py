"""Bodies of the routes that make vectors of texts, rank them or name their labels; each is that of another API."""

from __future__ import annotations

from typing import Literal

import msgspec

from .protocol import Prompts

Side = Literal["Left", "Right", "left", "right"]  # of a text, from which it is cut


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """Body of /v1/embeddings."""

    input: Prompts
    model: str | None = None
    dimensions: int | None = None
    encoding_format: Literal["float", "base64"] | None = None


class EmbedRequest(msgspec.Struct, kw_only=True):
    """Body of /embed, of Text Embeddings Inference."""

    inputs: str | list[str]
    model: str | None = None
    normalize: bool | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    truncate: bool | None = None
    truncation_direction: Side | None = None


class PredictRequest(msgspec.Struct, kw_only=True):
    """Body of /predict, of Text Embeddings Inference: a text, a pair of texts, or a list of lists of one or two."""

    inputs: str | list[str | list[str]]
    model: str | None = None
    raw_scores: bool | None = None
    truncate: bool | None = None
    truncation_direction: Side | None = None


class ClassifyRequest(msgspec.Struct, kw_only=True):
    """Body of /classify, of vLLM."""

    input: Prompts
    model: str | None = None


class RankedText(msgspec.Struct, kw_only=True):
    """A document as an object."""

    text: str


class RerankRequest(msgspec.Struct, kw_only=True):
    """Body of /v1/rerank: `documents`, or `texts` and the fields behind them as Text Embeddings Inference has them."""

    query: str
    documents: str | list[str | RankedText] | None = None
    texts: list[str] | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None
    truncation_direction: Side | None = None
    model: str | None = None
    top_n: int | None = None
    return_documents: bool | None = None
    instruct: str | None = None


class ScoreRequest(msgspec.Struct, kw_only=True):
    """Body of /v1/score: one text or as many as of the others on the left, any number on the right.

    vLLM has four names for the two sides.
    """

    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    data_1: str | list[str] | None = None
    data_2: str | list[str] | None = None
    queries: str | list[str] | None = None
    documents: str | list[str] | None = None
    items: str | list[str] | None = None
    model: str | None = None
    instruct: str | None = None
