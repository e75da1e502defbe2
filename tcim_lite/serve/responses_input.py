"""From the body of /v1/responses to the chat that it asks for; there is no other way to an answer."""

from __future__ import annotations

from contextlib import AbstractContextManager

from .errors import ApiError, renamed
from .protocol import (
    AllowedTools,
    ChatRequest,
    ContentPart,
    Function,
    FunctionCall,
    JsonSchema,
    Message,
    NamedFunction,
    NamedTool,
    ResponseFormat,
    Sampling,
    Tool,
    ToolCall,
    ToolChoice,
)
from .responses_protocol import LOGPROBS, FlatTool, FlatToolChoice, InputItem, ItemPart, ResponsesRequest, TextFormat

_TEXTS = ("input_text", "output_text", "reasoning_text", "summary_text", "text")
_FILES = ("input_image", "input_audio")
# Names of a chat's fields in errors, and whose values they are here.
_NAMES = {"messages": "input", "max_completion_tokens": "max_output_tokens", "response_format": "text.format"}


def chat_request(request: ResponsesRequest) -> ChatRequest:
    """The same question as a chat.

    Raises:
        ApiError: An item, a tool or an option that cannot be used.
    """
    logprobs = LOGPROBS in (request.include or ())
    if request.top_logprobs and not logprobs:
        raise ApiError(400, f"top_logprobs: add {LOGPROBS!r} to include as well", param="top_logprobs")
    wanted = request.text.format if request.text else None
    tools = request.tools
    return ChatRequest(
        **{name: getattr(request, name) for name in Sampling.__struct_fields__},
        messages=_messages(request),
        max_completion_tokens=request.max_output_tokens,
        logprobs=logprobs,
        top_logprobs=request.top_logprobs,
        response_format=None if wanted is None else _format(wanted),
        tools=None if tools is None else [_tool(tool, index) for index, tool in enumerate(tools)],
        tool_choice=_choice(request.tool_choice)
        if isinstance(request.tool_choice, FlatToolChoice)
        else request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
        chat_template_kwargs=request.chat_template_kwargs,
    )


def named_as_asked() -> AbstractContextManager[None]:
    """As `renamed`, for /v1/responses."""
    return renamed(_NAMES)


def _messages(request: ResponsesRequest) -> list[Message]:
    made = [Message(role="system", content=request.instructions)] if request.instructions else []
    if isinstance(request.input, str):
        return [*made, Message(role="user", content=request.input)]
    turns = _Turns(made)
    for index, item in enumerate(request.input):
        turns.add(item, f"input[{index}]")
    return turns.messages


class _Turns:
    """Puts items together: a chat has what the assistant thought, said and called in one message."""

    def __init__(self, messages: list[Message]):
        self.messages = messages
        self._open: Message | None = None  # the assistant's, while only its own items follow

    def add(self, item: InputItem, at: str) -> None:
        """Takes one item.

        Raises:
            ApiError: It cannot be read.
        """
        if item.type == "message" and item.role == "assistant":
            turn, text = self._open, _text(item.content, f"{at}.content")
            if turn is None or (turn.content and not turn.tool_calls):
                turn = self._begin()
            turn.content = f"{turn.content}{text}"
        elif item.type == "message":
            if item.role is None:
                raise _missing(at, "role")
            self._close(Message(role=item.role, content=_content(item.content, f"{at}.content")))
        elif item.type == "function_call":
            turn = self._open or self._begin()
            called = FunctionCall(name=_given(item.name, at, "name"), arguments=_given(item.arguments, at, "arguments"))
            call = ToolCall(function=called, id=_given(item.call_id, at, "call_id"))
            turn.tool_calls = [*(turn.tool_calls or []), call]
        elif item.type == "function_call_output":
            given = _content(item.output, f"{at}.output")
            self._close(Message(role="tool", content=given, tool_call_id=_given(item.call_id, at, "call_id")))
        elif item.type == "reasoning":
            text = _text(item.content or item.summary or "", f"{at}.content")
            turn = self._open
            if text and (turn is None or turn.content or turn.tool_calls):
                turn = self._begin()
            if text and turn is not None:
                turn.reasoning_content = (turn.reasoning_content or "") + text
        else:
            hint = (
                "; nothing is stored: send the item itself, as clients do that are told store false"
                if item.type == "item_reference"
                else ""
            )
            raise ApiError(
                400,
                f"{at}: an item of type {item.type!r:.40}{hint}; expected message, function_call, function_call_output "
                "or reasoning",
                param="input",
            )

    def _begin(self) -> Message:
        self._open = Message(role="assistant", content="")
        self.messages.append(self._open)
        return self._open

    def _close(self, message: Message) -> None:
        self._open = None
        self.messages.append(message)


def _missing(at: str, name: str) -> ApiError:
    return ApiError(400, f"{at}: {name} is missing", param="input")


def _given(value: str | None, at: str, name: str) -> str:
    if value is None:
        raise _missing(at, name)
    return value


def _text(content: str | list[ItemPart] | None, at: str) -> str:
    if content is None:
        at, _, name = at.rpartition(".")
        raise _missing(at, name)
    return content if isinstance(content, str) else "".join(_part(part, f"{at}[{i}]") for i, part in enumerate(content))


def _content(content: str | list[ItemPart] | None, at: str) -> str | list[ContentPart]:
    """Text, or with images and sounds the parts of a chat's message."""
    if not isinstance(content, list) or not any(part.type in _FILES for part in content):
        return _text(content, at)
    return [
        _file(part, f"{at}[{i}]") if part.type in _FILES else ContentPart(type="text", text=_part(part, f"{at}[{i}]"))
        for i, part in enumerate(content)
    ]


def _file(part: ItemPart, at: str) -> ContentPart:
    if part.image_url is None and part.file_id is not None:
        raise ApiError(
            400, f"{at}: file_id: nothing is stored; send the image itself as image_url, a data URL", param="input"
        )
    return ContentPart(type=part.type, image_url=part.image_url, input_audio=part.input_audio)


def _part(part: ItemPart, at: str) -> str:
    if part.type not in (*_TEXTS, "refusal"):
        raise ApiError(
            400,
            f"{at}: a part of type {part.type!r:.40}; expected input_text, or input_image or input_audio in messages "
            "of the user",
            param="input",
        )
    return _given(
        part.refusal if part.type == "refusal" else part.text, at, "refusal" if part.type == "refusal" else "text"
    )


def _tool(tool: FlatTool, index: int) -> Tool:
    at = f"tools[{index}]"
    if tool.type != "function":
        raise ApiError(
            400,
            f"{at}: a tool of type {tool.type!r:.40}; this server has no tools of its own, so only functions that the "
            "client calls can be used: leave it out",
            param="tools",
        )
    if tool.name is None:
        raise ApiError(400, f"{at}: name is missing; it stands beside type, not in function", param="tools")
    return Tool(
        function=Function(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    )


def _choice(choice: FlatToolChoice) -> ToolChoice:
    if choice.type == "function":
        if choice.name is None:
            raise ApiError(400, "tool_choice: name is missing", param="tool_choice.name")
        return ToolChoice(function=NamedFunction(name=choice.name))
    if choice.mode is None or choice.tools is None:
        raise ApiError(400, "tool_choice: allowed_tools needs mode and tools", param="tool_choice")
    names = [NamedTool(function=NamedFunction(name=tool.name)) for tool in choice.tools]
    return ToolChoice(type="allowed_tools", allowed_tools=AllowedTools(mode=choice.mode, tools=names))


def _format(wanted: TextFormat) -> ResponseFormat:
    if wanted.type != "json_schema":
        if wanted.schema is not None:
            raise ApiError(400, "text.format: a schema needs the type json_schema", param="text.format.type")
        return ResponseFormat(type=wanted.type)
    if wanted.name is None or wanted.schema is None:
        raise ApiError(400, "text.format: json_schema needs name and schema", param="text.format")
    return ResponseFormat(type="json_schema", json_schema=JsonSchema(name=wanted.name, schema=wanted.schema))
