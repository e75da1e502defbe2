"""/v1/audio/transcriptions: what is said in a sound, by packages whose chats hear sounds."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..llm.engine import SamplingParams
from ..llm.media import MediaError, Seen
from ..llm.sounds import SoundPrompts
from .answer_routes import adapter_of
from .answers import Answers
from .chat import prompt_text
from .errors import ApiError, invalid
from .forms import read_form
from .protocol import ContentPart, Message, TranscriptionRequest
from .reading import read_fields
from .service import Service
from .streams import EventStream, JsonResponse, finish
from .transcript import ASR_TAG, LANGUAGES, TranscriptWriter
from .usage import UsageCount

_INSTRUCTION = "Please transcribe this audio into text"  # what GLM-ASR was trained with
Part = tuple[float, float, Seen]


async def transcriptions(service: Service, http: Request) -> Response:
    """POST /v1/audio/transcriptions."""
    request = read_fields(TranscriptionRequest, await read_form(http, service.options))
    adapter = adapter_of(service, request.model)
    sounds = service.sounds
    if isinstance(sounds, str):
        raise ApiError(
            400,
            f"/v1/audio/transcriptions: {sounds}; packages of Whisper run with examples/speech_recognition.py",
            code="unsupported_audio",
        )
    plain = request.response_format in (None, "json")
    if request.stream and not plain:
        raise ApiError(400, "stream: a stream has the form json; leave response_format out", param="stream")
    try:
        params = SamplingParams.of(
            service.defaults,
            temperature=request.temperature or 0.0,
            max_tokens=request.max_completion_tokens,
            adapter=adapter,
        )
    except (ValueError, TypeError) as error:
        raise invalid(error) from None
    parts, tokens = await service.in_thread(lambda: _prompts(service, sounds, request))
    prompts = await service.in_tower_thread(
        lambda: [sounds.place(own, [seen]) for own, (_, _, seen) in zip(tokens, parts, strict=True)]
    )
    answers = Answers(service.engines, service.metrics, service.options.timeout_s)
    await answers.submit(service.executor, prompts, params, 1)
    writer = TranscriptWriter(
        request,
        sounds.family,
        [(begin, end) for begin, end, _ in parts],
        UsageCount(list(map(len, prompts)), 1),
        sum(seen.tokens for _, _, seen in parts),
    )
    if request.stream:
        return EventStream(answers, writer, service.options)
    await finish(http.receive, answers, writer)
    return PlainTextResponse(writer.text) if request.response_format == "text" else JsonResponse(writer.body())


def _prompts(
    service: Service, sounds: SoundPrompts, request: TranscriptionRequest
) -> tuple[list[Part], list[list[int]]]:
    """The parts of the sound, and for each the tokens of a prompt.

    Raises:
        ApiError: 400: The sound cannot be read, has too many parts, or a part does not fit the context.
    """
    try:
        parts = sounds.parts(request.file)
    except MediaError as error:
        raise ApiError(400, f"file: {error}", param="file", code="invalid_audio") from None
    if len(parts) > (most_parts := service.options.max_choices):
        raise ApiError(
            400,
            f"file: a sound of {parts[-1][1]:.0f} s is heard in {len(parts)} parts; expected at most {most_parts}: "
            "send it in several files",
            param="file",
        )
    messages, begun = _question(sounds.family, request)
    text = prompt_text(service.template, messages) + begun
    most, found = service.engines.slots.context_length, []
    for _, _, seen in parts:
        try:
            whole = sounds.expand(text, [seen])
        except MediaError as error:
            raise ApiError(400, f"prompt: {error}", param="prompt", code="invalid_audio") from None
        found.append(service.vocabulary.encode_prompt(whole, special=False, most=most))
        if len(found[-1]) >= most:
            raise ApiError(
                400,
                f"the prompt has {len(found[-1])} tokens, {seen.tokens} of them of a sound, which leaves no room in a "
                f"context of {most}; shorten the prompt, or compile with a larger --context-length or fewer "
                "--audio-frames",
                param="prompt" if request.prompt else "file",
                code="context_length_exceeded",
            )
    return parts, found


def _question(family: str, request: TranscriptionRequest) -> tuple[list[Message], str]:
    """The chat that asks for the text, and how its answer begins.

    Raises:
        ApiError: 400: A field that a model of this family has no place for.
    """
    sound = ContentPart(type="input_audio")
    if family == "glmasr":
        for name in ("language", "prompt"):
            if getattr(request, name):
                raise ApiError(
                    400,
                    f"{name}: GLM-ASR has learned one question, without it; leave it out, or ask at "
                    "/v1/chat/completions",
                    param=name,
                )
        return [Message(role="user", content=[sound, ContentPart(type="text", text=_INSTRUCTION)])], ""
    messages = [Message(role="system", content=request.prompt)] if request.prompt else []
    messages.append(Message(role="user", content=[sound]))
    if not request.language:
        return messages, ""
    name = LANGUAGES.get(request.language.lower(), request.language.capitalize())
    if name not in LANGUAGES.values():
        raise ApiError(
            400,
            f"language={request.language!r:.40}: Qwen3-ASR has not learned it; expected one of {', '.join(LANGUAGES)}, "
            "or leave it out",
            param="language",
            code="invalid_value",
        )
    return messages, f"language {name}{ASR_TAG}"
