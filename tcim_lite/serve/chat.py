"""/v1/chat/completions: from messages to a prompt, from events to choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from ..llm.engine import Event, SamplingParams
from .channels import before_answer
from .chat_template import ChatTemplate, TemplateError
from .errors import ApiError
from .logprobs import chat_logprobs
from .messages import plain
from .protocol import ChatRequest, Message, Tool
from .reply_forms import end_tags, parts_of
from .reply_parts import ForcedCall, Parts, Splitter
from .sampling import named_tool
from .tool_calls import CallPart, call_delta, call_object
from .vocabulary import Vocabulary

_MARK = "CONTINUE_FINAL_MESSAGE_HERE "
# Of the template's variables, what decides on the form of the prompt.
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "tokenize"})


def prompt_text(
    template: ChatTemplate | None,
    messages: list[Message],
    tools: list[Tool] | None = None,
    variables: dict[str, Any] | None = None,
    *,
    begins_reply: bool = True,
    goes_on: bool = False,
    marks: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The text of a conversation up to where the reply begins.

    Args:
        template: Of the package.
        messages: The conversation.
        tools: That the model may call.
        variables: Others of the template.
        begins_reply: The text ends with the beginning of a reply.
        goes_on: The text ends within the last message, of which the reply is the rest.
        marks: As in `plain`.

    Raises:
        ApiError: There is no template, it refuses the conversation, or a message has what cannot be read.
    """
    if template is None:
        raise ApiError(
            400, "this package has no chat template; use /v1/completions, or start the server with --chat-template FILE"
        )
    if not messages:
        raise ApiError(400, "messages: expected at least one", param="messages")
    if bad := _RESERVED & (variables or {}).keys():
        raise ApiError(400, f"{min(bad)} cannot be set here", param="chat_template_kwargs")
    arguments: dict[str, Any] = {**(variables or {}), "add_generation_prompt": begins_reply}
    arguments["messages"] = [plain(message, i, marks) for i, message in enumerate(messages)]
    said = _marked(arguments["messages"][-1]) if goes_on else ""
    try:
        if tools:
            arguments["tools"] = [_without_none(msgspec.to_builtins(tool)) for tool in tools]
        text = template.render(arguments)
    except TemplateError as error:
        raise ApiError(400, str(error), param="messages", code="chat_template") from None
    except RecursionError:
        name = "tools" if tools else "messages"
        raise ApiError(
            400, f"{name}: objects inside objects, too many levels for the chat template; send fewer", param=name
        ) from None
    return _up_to_mark(text, said) if goes_on else text


def _marked(last: dict[str, Any]) -> str:
    """The content of the last message, which gets a mark: its own words may be in what the template puts behind it."""
    said = str(last["content"]).strip()
    if last["role"] != "assistant" or not said:
        raise _nothing_to_continue()
    last["content"] += _MARK
    return said


def _up_to_mark(text: str, said: str) -> str:
    """`text` without what the template puts behind the last message."""
    before, found, after = text.rpartition(_MARK.rstrip())
    if not found or not before.rstrip().endswith(said):
        raise _nothing_to_continue()
    return before if after.startswith(" ") else before.rstrip()  # the template cuts blanks at ends of messages


def _nothing_to_continue() -> ApiError:
    return ApiError(
        400,
        "continue_final_message: the last message has to be the assistant's, with content that the chat template "
        "writes as it is",
        param="continue_final_message",
    )


def chat_prompt(
    request: ChatRequest,
    template: ChatTemplate | None,
    params: SamplingParams,
    marks: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The prompt of a request; `marks` are as in `prompt_text`.

    A grammar holds from the first token on, which leaves no room to think; so thinking is off with one unless the
    request says otherwise, and a reply with channels begins in that of the answer.

    Raises:
        ApiError: As `prompt_text`.
    """
    variables: dict[str, Any] = {}
    if request.reasoning_effort is not None:
        variables["reasoning_effort"] = request.reasoning_effort
    if params.structured is not None or request.reasoning_effort == "none":
        variables["enable_thinking"] = False
    variables |= request.chat_template_kwargs or {}
    tools = None if request.tool_choice == "none" else request.tools
    goes_on = bool(request.continue_final_message)
    begins_reply = not goes_on if request.add_generation_prompt is None else request.add_generation_prompt
    if goes_on and begins_reply:
        raise ApiError(
            400,
            "continue_final_message: no reply begins then; leave add_generation_prompt out, or send false",
            param="add_generation_prompt",
        )
    text = prompt_text(
        template, request.messages, tools, variables, begins_reply=begins_reply, goes_on=goes_on, marks=marks
    )
    return text + before_answer(text) if params.structured else text


def params_for(prompt: str, params: SamplingParams, vocabulary: Vocabulary) -> SamplingParams:
    """How the reply to a prompt is made: one with channels has them in its text, and ends where it calls a tool."""
    tags = end_tags(prompt)
    if tags is None:
        return params
    ends = {token for text in tags if (token := vocabulary.token_id(text)) is not None}
    form = params.structured and replace(params.structured, tagged=None)  # calls have tags of their own
    return replace(params, skip_special_tokens=False, stop_token_ids=params.stop_token_ids | ends, structured=form)


class ChatReply:
    """The choices of one response.

    Args:
        prompt: Text; its end says which form the reply has.
        n: Number of choices.
    """

    prefix, kind, chunk_kind = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, request: ChatRequest, prompt: str, n: int, vocabulary: Vocabulary):
        self._vocabulary, self._n = vocabulary, n
        self._has_logprobs = bool(request.logprobs)
        self._one_call = request.parallel_tool_calls is False
        named = named_tool(request)
        self._is_named = named is not None
        schemas = {tool.function.name: tool.function.parameters or {} for tool in request.tools or ()}
        names = frozenset(schemas)
        self._parts: list[Splitter | ForcedCall] = []
        for _ in range(n):
            if named is not None or request.tool_choice == "required":
                self._parts.append(ForcedCall(named, names))
            else:
                self._parts.append(parts_of(prompt, frozenset() if request.tool_choice == "none" else names, schemas))
        self._whole = [Parts() for _ in range(n)]
        self._begun = [0] * n  # calls, those included that are left out
        self._logprobs: list[list[Any]] = [[] for _ in range(n)]
        self._reasons = [""] * n

    def begin(self) -> list[dict[str, Any]]:
        """The choices of a stream before any token."""
        return [self._chunk(index, {"role": "assistant", "content": ""}) for index in range(self._n)]

    def add(self, index: int, event: Event) -> list[dict[str, Any]]:
        """What an event adds to a choice, as choices of a stream."""
        made = []
        pieces = [self._parts[index].add(event.text)]
        if event.finish_reason is not None:
            pieces.append(self._parts[index].rest())
        for piece in pieces:
            made += [self._chunk(index, delta) for delta in self._deltas(index, piece)]
        if self._has_logprobs and event.logprobs:
            found = chat_logprobs(event.logprobs, self._vocabulary)
            self._logprobs[index] += found["content"]
            if not made:
                made.append(self._chunk(index, {}))
            made[0]["logprobs"] = found
        if event.finish_reason is not None:
            called = bool(self._whole[index].calls) and not self._is_named  # OpenAI: a call that was named is a stop
            reason = "tool_calls" if called and event.finish_reason == "stop" else event.finish_reason
            self._reasons[index] = reason
            made.append({**self._chunk(index, {}), "finish_reason": reason})
        return made

    def choices(self) -> list[dict[str, Any]]:
        """The choices of a response in one piece."""
        made: list[dict[str, Any]] = []
        for index, whole in enumerate(self._whole):
            message: dict[str, Any] = {"role": "assistant", "content": whole.content, "refusal": None}
            if whole.reasoning:
                message["reasoning_content"] = whole.reasoning
            if whole.calls:
                message["content"] = whole.content or None
                message["tool_calls"] = [call_object(call) for call in whole.calls]
            logprobs = {"content": self._logprobs[index], "refusal": None} if self._has_logprobs else None
            choice = {"index": index, "message": message, "logprobs": logprobs, "finish_reason": self._reasons[index]}
            made.append(choice)
        return made

    def _deltas(self, index: int, piece: Parts) -> list[dict[str, Any]]:
        whole = self._whole[index]
        made: list[dict[str, Any]] = []
        if piece.reasoning:
            whole.reasoning += piece.reasoning
            made.append({"reasoning_content": piece.reasoning})
        if piece.content:
            whole.content += piece.content
            made.append({"content": piece.content})
        for call in piece.calls:
            self._begun[index] += call.name is not None
            if self._one_call and self._begun[index] > 1:
                continue
            if call.name is not None:
                whole.calls.append(CallPart(call.name))
            whole.add_arguments(call.arguments)
            made.append({"tool_calls": [call_delta(call, len(whole.calls) - 1)]})
        return made

    @staticmethod
    def _chunk(index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _without_none(value: Any) -> Any:
    """Fields that a client left out are not shown to the model."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
