"""From the body of /v1/messages to the chat that it asks for; there is no other way to an answer."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from .anthropic_protocol import AnthropicTool, AnthropicToolChoice, Block, CountRequest, MessagesRequest
from .errors import ApiError, renamed
from .protocol import (
    ChatRequest,
    ContentPart,
    Function,
    FunctionCall,
    ImageUrl,
    JsonSchema,
    Message,
    NamedFunction,
    ResponseFormat,
    Tool,
    ToolCall,
    ToolChoice,
)

# Claude Code begins its system prompt with a block for the bill, which differs with each request: no prompt would
# begin like an earlier one.
_BILLING = "x-anthropic-billing-header:"
# Names of a chat's fields in errors, and whose values they are here.
_NAMES = {
    "max_completion_tokens": "max_tokens",
    "response_format": "output_config.format",
    "stop": "stop_sequences",
    "continue_final_message": "messages",
    "add_generation_prompt": "messages",
}


@dataclass
class Chat:
    """A chat, and where its messages come from.

    Attributes:
        request: As /v1/chat/completions takes it.
        places: Of each message, its name in the body, such as "messages[0]".
    """

    request: ChatRequest
    places: list[str]


def chat_of(request: CountRequest) -> Chat:
    """The same question as a chat.

    Raises:
        ApiError: A block, a tool or an option that cannot be used.
    """
    turns = _Turns()
    if request.system is not None:
        turns.add_system(request.system, "system", "system")
    for index, turn in enumerate(request.messages):
        at = f"messages[{index}]"
        if turn.role == "system":
            turns.add_system(turn.content, at, f"{at}.content")
        elif turn.role == "assistant":
            turns.add_assistant(turn.content, at)
        else:
            turns.add_user(turn.content, at)
    if not request.messages:
        raise ApiError(400, "messages: expected at least one", param="messages")
    config, choice = request.output_config, request.tool_choice
    form = request.output_format or (config.format if config else None)
    tools = request.tools
    chat = ChatRequest(
        model=request.model,
        messages=turns.messages,
        tools=None if not tools else [_tool(tool, index) for index, tool in enumerate(tools)],
        tool_choice=None if choice is None else _choice(choice),
        parallel_tool_calls=False if choice is not None and choice.disable_parallel_tool_use else None,
        response_format=None
        if form is None
        else ResponseFormat(type="json_schema", json_schema=JsonSchema(name="output", schema=form.schema)),
        reasoning_effort=config.effort if config else None,
        continue_final_message=True if turns.messages and turns.messages[-1].role == "assistant" else None,
    )
    if request.thinking is not None:
        chat.chat_template_kwargs = {"enable_thinking": request.thinking.type != "disabled"}
    if isinstance(request, MessagesRequest):
        chat.max_tokens, chat.stream, chat.stop = request.max_tokens, request.stream, request.stop_sequences
        chat.temperature, chat.top_p, chat.top_k = request.temperature, request.top_p, request.top_k
    return Chat(chat, turns.places)


@contextlib.contextmanager
def named_as_sent(places: Sequence[str]) -> Iterator[None]:
    """As `renamed`, for /v1/messages; those about a message of the chat name its place in the body."""
    with renamed(_NAMES, unsent="structured_outputs, "):
        try:
            yield
        except ApiError as error:
            error.message = re.sub(r"^messages\[(\d+)\]", lambda found: places[int(found[1])], error.message)
            raise


@dataclass
class _Turns:
    """Messages of a chat, as they are put together."""

    messages: list[Message] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def add_system(self, content: str | list[Block], at: str, listed: str) -> None:
        """A message of the system, whose blocks the body has in the list `listed`."""
        blocks = [Block(type="text", text=content)] if isinstance(content, str) else content
        texts = [_text(block, f"{listed}[{i}]") for i, block in enumerate(blocks)]
        if text := "\n".join(text for text in texts if not text.startswith(_BILLING)):
            self._add(Message(role="system", content=text), at)

    def add_user(self, content: str | list[Block], at: str) -> None:
        """A message of the user, and before it those of the tools whose results it has."""
        if isinstance(content, str):
            self._add(Message(role="user", content=content), at)
            return
        results = [block.type == "tool_result" for block in content]
        for index, block in enumerate(content):
            if results[index]:
                where = f"{at}.content[{index}]"
                if block.tool_use_id is None:
                    raise _refused(f"{where}: tool_use_id is missing")
                blocks = {f"{where}.content[{i}]": part for i, part in enumerate(_blocks(block, where))}
                self._add(Message(role="tool", content=_content(blocks), tool_call_id=block.tool_use_id), at)
        if not all(results) or not content:
            said = {f"{at}.content[{i}]": block for i, block in enumerate(content) if not results[i]}
            self._add(Message(role="user", content=_content(said)), at)

    def add_assistant(self, content: str | list[Block], at: str) -> None:
        """What the assistant thought, said and called, in one message."""
        texts, thoughts, calls = list[str](), list[str](), list[ToolCall]()
        for index, block in enumerate([Block(type="text", text=content)] if isinstance(content, str) else content):
            where = f"{at}.content[{index}]"
            if block.type == "tool_use":
                if block.id is None or block.name is None:
                    raise _refused(f"{where}: {'id' if block.id is None else 'name'} is missing")
                called = FunctionCall(name=block.name, arguments=json.dumps(block.input or {}, ensure_ascii=False))
                calls.append(ToolCall(function=called, id=block.id))
            elif block.type == "thinking":
                thoughts.append(block.thinking or "")
            elif block.type != "redacted_thinking":  # which nobody here can read
                texts.append(_text(block, where))
        thought = "".join(thoughts) or None
        made = Message(role="assistant", content="".join(texts), tool_calls=calls or None, reasoning_content=thought)
        self._add(made, at)

    def _add(self, message: Message, at: str) -> None:
        self.messages.append(message)
        self.places.append(at)


def _refused(message: str) -> ApiError:
    return ApiError(400, message, param="messages", code="invalid_type")


def _blocks(block: Block, at: str) -> list[Block]:
    """Those of a tool's result."""
    if block.content is None:
        return []
    try:
        found = msgspec.convert(block.content, str | list[Block])
    except msgspec.ValidationError as error:
        raise _refused(f"{at}.content: {error}") from None
    return [Block(type="text", text=found)] if isinstance(found, str) else found


def _content(blocks: Mapping[str, Block]) -> str | list[ContentPart]:
    """Text, or with images the parts of a chat's message; texts that follow each other are lines.

    Args:
        blocks: By their places in the body, such as "messages[0].content[1]", in order.
    """
    parts: list[ContentPart] = []
    for at, block in blocks.items():
        if block.type == "image":
            parts.append(ContentPart(type="image_url", image_url=ImageUrl(url=_image(block, at))))
            continue
        text = _text(block, at)
        if parts and parts[-1].type == "text":
            parts[-1].text = f"{parts[-1].text}\n{text}"
        else:
            parts.append(ContentPart(type="text", text=text))
    if all(part.type == "text" for part in parts):
        return "".join(part.text or "" for part in parts)
    return parts


def _image(block: Block, at: str) -> str:
    """As a data URL; another address becomes an error where images are read."""
    source = block.source
    if source is None:
        raise _refused(f"{at}: source is missing; expected {{'type': 'base64', 'media_type': ..., 'data': ...}}")
    if source.type == "url" and source.url is not None:
        return source.url
    if source.type != "base64" or source.data is None:
        raise _refused(f"{at}: a source of type {source.type!r:.40}; send the image itself, as base64 with data")
    return f"data:{source.media_type or 'image/png'};base64,{source.data}"


def _text(block: Block, at: str) -> str:
    if block.type == "document":
        return _document(block, at)
    if block.type != "text":
        raise _refused(
            f"{at}: a block of type {block.type!r:.40}; expected text, image, tool_use, tool_result, thinking, or a "
            "document of text"
        )
    if block.text is None:
        raise _refused(f"{at}: text is missing")
    return block.text


def _document(block: Block, at: str) -> str:
    source = block.source
    if source is not None and source.type == "text" and source.data is not None:
        return source.data
    if source is not None and source.type == "content" and source.content is not None:
        blocks = [Block(type="text", text=source.content)] if isinstance(source.content, str) else source.content
        return "\n".join(_text(part, f"{at}.source.content[{i}]") for i, part in enumerate(blocks))
    kind = None if source is None else source.type
    raise _refused(f"{at}: a document whose source is {kind!r:.40}; nothing here reads files, so send its text")


def _tool(tool: AnthropicTool, index: int) -> Tool:
    at = f"tools[{index}]"
    if tool.type not in (None, "custom"):
        raise ApiError(
            400,
            f"{at}: a tool of type {tool.type!r:.40}; this server has no tools of its own, so only those with an "
            "input_schema, which the client runs, can be used: leave it out",
            param="tools",
        )
    if tool.input_schema is None:
        raise ApiError(400, f"{at}: input_schema is missing", param="tools")
    return Tool(function=Function(name=tool.name, description=tool.description, parameters=tool.input_schema))


def _choice(choice: AnthropicToolChoice) -> Literal["none", "auto", "required"] | ToolChoice:
    if choice.type != "tool":
        return "required" if choice.type == "any" else choice.type
    if choice.name is None:
        raise ApiError(400, "tool_choice: name is missing", param="tool_choice")
    return ToolChoice(function=NamedFunction(name=choice.name))
