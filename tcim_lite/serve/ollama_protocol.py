"""Bodies of Ollama's routes below /api."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

KeepAlive = int | float | str  # seconds, or a duration such as "5m"; read and without effect


class OllamaOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How an answer is made. Those behind `presence_penalty` are about loading a model, or change nothing here."""

    num_predict: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    repeat_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    draft_num_predict: int | None = None
    embedding_only: bool | None = None
    f16_kv: bool | None = None
    logits_all: bool | None = None
    low_vram: bool | None = None
    main_gpu: int | None = None
    numa: bool | None = None
    num_batch: int | None = None
    num_ctx: int | None = None
    num_gpu: int | None = None
    num_keep: int | None = None
    num_thread: int | None = None
    penalize_newline: bool | None = None
    repeat_last_n: int | None = None
    use_mlock: bool | None = None
    use_mmap: bool | None = None
    vocab_only: bool | None = None
    mirostat: Literal[0] | None = None  # other samplers are not here
    mirostat_eta: float | None = None
    mirostat_tau: float | None = None
    tfs_z: float | None = None
    typical_p: float | None = None


class OllamaFunction(msgspec.Struct, kw_only=True):
    """What was called."""

    name: str
    arguments: dict[str, Any] = {}


class OllamaCall(msgspec.Struct, kw_only=True):
    """A call of a tool."""

    function: OllamaFunction
    id: str | None = None


class OllamaMessage(msgspec.Struct, kw_only=True):
    """One turn; images are files in base64."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaToolFunction(msgspec.Struct, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OllamaTool(msgspec.Struct, kw_only=True):
    """A tool; functions are the only kind."""

    function: OllamaToolFunction
    type: Literal["function"] | None = None


class OllamaQuestion(msgspec.Struct, kw_only=True):
    """Fields that both kinds of questions have."""

    model: str
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    think: bool | str | None = None
    options: OllamaOptions | None = None
    keep_alive: KeepAlive | None = None


class OllamaChatRequest(OllamaQuestion, kw_only=True):
    """Body of /api/chat."""

    messages: list[OllamaMessage] = []
    tools: list[OllamaTool] | None = None


class OllamaGenerateRequest(OllamaQuestion, kw_only=True):
    """Body of /api/generate."""

    prompt: str = ""
    system: str | None = None
    images: list[str] | None = None
    raw: bool | None = None


class OllamaEmbedRequest(msgspec.Struct, kw_only=True):
    """Body of /api/embed."""

    model: str
    input: str | list[str]
    truncate: bool | None = None
    dimensions: int | None = None
    options: OllamaOptions | None = None
    keep_alive: KeepAlive | None = None


class OllamaEmbeddingsRequest(msgspec.Struct, kw_only=True):
    """Body of /api/embeddings, the form before /api/embed."""

    model: str
    prompt: str
    options: OllamaOptions | None = None
    keep_alive: KeepAlive | None = None


class OllamaShowRequest(msgspec.Struct, kw_only=True):
    """Body of /api/show; `name` is the older name of `model`."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
