"""Bodies of /v1/messages. As in protocol.py, marks that clients put into blocks and tools are not read."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Source(msgspec.Struct, kw_only=True):
    """Where an image or a document is; base64 of images and texts of documents can be read."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    content: str | list[Block] | None = None


class Block(msgspec.Struct, kw_only=True):
    """A piece of a message; `type` says which fields count."""

    type: str
    text: str | None = None
    source: Source | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: Any = None  # of a tool's result: a text, or blocks
    is_error: bool | None = None
    thinking: str | None = None


class Turn(msgspec.Struct, kw_only=True):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class AnthropicTool(msgspec.Struct, kw_only=True):
    """A tool; those that the client runs are the only kind."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class AnthropicToolChoice(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whether a tool is called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, kw_only=True):
    """Whether the model thinks first; a budget changes nothing here."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class OutputFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Form of the answer."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, kw_only=True):
    """What the answer is like."""

    effort: str | None = None
    format: OutputFormat | None = None


class CountRequest(msgspec.Struct, kw_only=True):
    """Body of /v1/messages/count_tokens."""

    messages: list[Turn]
    model: str | None = None
    system: str | list[Block] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None


class MessagesRequest(CountRequest, kw_only=True):
    """Body of /v1/messages."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


MESSAGES_FIELDS = frozenset(  # of Anthropic's that change nothing here
    {
        "betas",
        "cache_control",
        "context_management",
        "diagnostics",
        "inference_geo",
        "metadata",
        "service_tier",
        "speed",
    }
)
