"""From the bodies of /api/chat and /api/generate to the chat or the completion that they ask for."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

from .errors import ApiError, renamed
from .ollama_protocol import (
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaMessage,
    OllamaOptions,
    OllamaQuestion,
)
from .protocol import (
    ChatRequest,
    CompletionRequest,
    ContentPart,
    Function,
    FunctionCall,
    ImageUrl,
    JsonSchema,
    Message,
    ResponseFormat,
    Tool,
    ToolCall,
)

# Names of fields of a chat in errors, and whose values they are here.
_NAMES = {
    "max_tokens": "num_predict",
    "repetition_penalty": "repeat_penalty",
    "response_format": "format",
}


def named_as_ollama() -> AbstractContextManager[None]:
    """As `renamed`, for Ollama's routes."""
    return renamed(_NAMES)


def chat_of_ollama(request: OllamaChatRequest) -> ChatRequest:
    """The same question as a chat.

    Raises:
        ApiError: A format that is not known.
    """
    tools = [
        Tool(function=Function(name=tool.function.name, description=tool.function.description,
                               parameters=tool.function.parameters))
        for tool in request.tools or ()
    ]  # fmt: skip
    messages = [_message(message) for message in request.messages]
    return ChatRequest(messages=messages, tools=tools or None, **_common(request), **_thinking(request))


def chat_of_prompt(request: OllamaGenerateRequest) -> ChatRequest:
    """As `chat_of_ollama`, of a prompt that the chat template is put around."""
    system = [Message(role="system", content=request.system)] if request.system else []
    asked = _message(OllamaMessage(role="user", content=request.prompt, images=request.images))
    return ChatRequest(messages=[*system, asked], **_common(request), **_thinking(request))


def completion_of(request: OllamaGenerateRequest) -> CompletionRequest:
    """The same question as a completion, for a prompt that is taken as it is.

    Raises:
        ApiError: A field that goes with the chat template.
    """
    for name in ("system", "images", "think", "format"):
        if getattr(request, name):
            raise ApiError(400, f"{name}: does not go with raw, whose prompt is taken as it is", param=name)
    return CompletionRequest(prompt=request.prompt, **_common(request))


def _common(request: OllamaQuestion) -> dict[str, Any]:
    options = request.options or OllamaOptions()
    for name in ("tfs_z", "typical_p"):
        if getattr(options, name) not in (None, 1):
            raise ApiError(400, f"{name}: this sampler is not here; leave it out, or send 1", param=name)
    most = options.num_predict
    return {
        "max_tokens": None if most is None or most < 0 else most,
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "seed": options.seed if options.seed is None or options.seed >= 0 else None,
        "stop": options.stop,
        "repetition_penalty": options.repeat_penalty,
        "frequency_penalty": options.frequency_penalty,
        "presence_penalty": options.presence_penalty,
        "stream": request.stream is not False,
    }


def _thinking(request: OllamaQuestion) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if isinstance(request.think, str):
        made["reasoning_effort"] = request.think
    elif request.think is not None:
        made["chat_template_kwargs"] = {"enable_thinking": request.think}
    if isinstance(request.format, dict):
        made["response_format"] = ResponseFormat(
            type="json_schema", json_schema=JsonSchema(name="format", schema=request.format)
        )
    elif request.format == "json":
        made["response_format"] = ResponseFormat(type="json_object")
    elif request.format:
        raise ApiError(400, f"format={request.format!r:.40}: expected 'json' or a JSON schema", param="format")
    return made


def _message(message: OllamaMessage) -> Message:
    calls = [
        ToolCall(
            function=FunctionCall(
                name=call.function.name, arguments=json.dumps(call.function.arguments, ensure_ascii=False)
            ),
            id=call.id or "",
        )
        for call in message.tool_calls or ()
    ]
    content: str | list[ContentPart] = message.content or ""
    if message.images:
        images = [
            ContentPart(type="image_url", image_url=ImageUrl(url=f"data:image/png;base64,{image}"))
            for image in message.images
        ]
        content = [*images, ContentPart(type="text", text=message.content or "")]
    return Message(
        role=message.role,
        content=content,
        name=message.tool_name,
        tool_calls=calls or None,
        tool_call_id=message.tool_call_id,
        reasoning_content=message.thinking,
    )
