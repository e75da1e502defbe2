"""Body of /v1/responses. As in protocol.py, marks that clients put into items and tools are not read."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .protocol import InputAudio, Sampling

LOGPROBS = "message.output_text.logprobs"
# The others ask for more of what no answer here has.
Includable = Literal[
    "message.output_text.logprobs",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class ItemPart(msgspec.Struct, kw_only=True):
    """A piece of an item's content; texts, refusals, images and sounds can be read."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_id: str | None = None
    input_audio: InputAudio | None = None


class InputItem(msgspec.Struct, kw_only=True):
    """A message, a call or what it gave, or what the model thought; `type` says which fields count."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[ItemPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[ItemPart] | None = None
    summary: list[ItemPart] | None = None


class FlatTool(msgspec.Struct, kw_only=True):
    """A tool; functions are the only kind that can be used."""

    type: str = "function"
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolName(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Name of a function."""

    name: str
    type: Literal["function"] = "function"


class FlatToolChoice(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The function that the answer has to call, or those that it may call."""

    type: Literal["function", "allowed_tools"]
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[ToolName] | None = None


class TextFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the answer's text is like; `verbosity` changes nothing here."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How much the model thinks. What it thought is returned whole, so a summary changes nothing."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesRequest(Sampling, kw_only=True):
    """Body of /v1/responses."""

    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    top_logprobs: int | None = None
    include: list[Includable] | None = None
    tools: list[FlatTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FlatToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
