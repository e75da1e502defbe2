"""Bodies of requests, as OpenAI's API and vLLM's extensions of it name their fields.

Options of an answer have no other fields than these. Clients put marks of their own into messages and tools, which are
not read.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Prompts = str | list[str | int | list[int]]  # a text, the tokens of one, or several


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a stream has besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool | None = None


class Guide(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`structured_outputs` of vLLM: the answer follows one of the first four. The others are refused."""

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    json_object: bool | None = None
    grammar: str | None = None
    structural_tag: str | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    disable_fallback: bool = False


class Sampling(msgspec.Struct, kw_only=True):
    """Fields that all answers have."""

    model: str | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    structured_outputs: Guide | None = None


class Choices(Sampling, kw_only=True):
    """Fields that both kinds of completion have besides."""

    max_tokens: int | None = None
    n: int | None = None


class CompletionRequest(Choices, kw_only=True):
    """Body of /v1/completions."""

    prompt: Prompts
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class ImageUrl(msgspec.Struct, kw_only=True):
    """Where an image is; only data URLs are read. `detail` changes nothing here."""

    url: str


class InputAudio(msgspec.Struct, kw_only=True):
    """A file in base64; only WAV is read."""

    data: str
    format: str | None = None


class ContentPart(msgspec.Struct, kw_only=True):
    """A piece of a message; texts, refusals, images and sounds can be read."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None
    input_audio: InputAudio | None = None


class FunctionCall(msgspec.Struct, kw_only=True):
    """A call that the assistant made; `arguments` is JSON in a string."""

    name: str
    arguments: str = "{}"


class ToolCall(msgspec.Struct, kw_only=True):
    """A call of a tool."""

    function: FunctionCall
    id: str = ""
    type: Literal["function"] = "function"


class Message(msgspec.Struct, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # what newer versions of vLLM call it


class Function(msgspec.Struct, kw_only=True):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True):
    """A tool; functions are the only kind."""

    function: Function
    type: Literal["function"] = "function"


class NamedFunction(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Name of a function."""

    name: str


class NamedTool(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Name of a tool."""

    function: NamedFunction
    type: Literal["function"] = "function"


class AllowedTools(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The tools that the answer may call, or has to call one of."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool]


class ToolChoice(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The tool that the answer has to call, or those that it may call."""

    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None
    type: Literal["function", "allowed_tools"] = "function"


class JsonSchema(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A schema and its name."""

    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Form of the answer. A json_object with a `schema` is llama.cpp's form of json_schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None


class ChatRequest(Choices, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class TranscriptionRequest(msgspec.Struct, kw_only=True):
    """Fields of the forms of /v1/audio/transcriptions and translations.

    `max_completion_tokens` is vLLM's, `condition_on_previous_text` an option of OpenAI's program.
    """

    file: bytes
    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] | None = None
    temperature: float | None = None
    stream: bool | None = None
    max_completion_tokens: int | None = None
    condition_on_previous_text: bool | None = None
    timestamp_granularities: list[Literal["segment", "word"]] | None = msgspec.field(
        default=None, name="timestamp_granularities[]"
    )


FORMS = (TranscriptionRequest,)  # bodies of type multipart/form-data


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Body of /tokenize: `prompt`, or `messages` as a chat has them. `content` is llama.cpp's name of `prompt`."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool = True
    add_special: bool | None = None


class TemplateRequest(msgspec.Struct, kw_only=True):
    """Body of /apply-template."""

    messages: list[Message]
    model: str | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Body of /detokenize."""

    tokens: list[int]
    model: str | None = None
