"""/v1/audio/transcriptions and translations: what is said in a sound, by Whisper and by models whose chats hear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..llm.engine import SamplingParams
from ..llm.media import MediaError, Seen
from ..llm.sounds import SoundPrompts, Task, WhisperReader
from .answer_routes import adapter_of
from .answers import Answers
from .chat import prompt_text
from .dictation import question, whisper_language
from .errors import ApiError, invalid
from .forms import read_form
from .protocol import TranscriptionRequest
from .reading import read_fields
from .service import Service
from .streams import EventStream, JsonResponse, finish, watching
from .temperature_fallback import TemperatureFallback
from .transcript import PartText, TimedText, TranscriptWriter
from .usage import UsageCount

_SURELY = 1000.0  # more than logits differ by
Part = tuple[float, float, Seen]


async def transcriptions(service: Service, http: Request) -> Response:
    """POST /v1/audio/transcriptions."""
    return await _written(service, http, "transcribe")


async def translations(service: Service, http: Request) -> Response:
    """POST /v1/audio/translations: into English."""
    return await _written(service, http, "translate")


async def _written(service: Service, http: Request, task: Task) -> Response:
    request = read_fields(TranscriptionRequest, await read_form(http, service.options))
    adapter = adapter_of(service, request.model)
    sounds, form = service.sounds, request.response_format or "json"
    if isinstance(sounds, str):
        raise ApiError(400, f"{http.url.path}: {sounds}", code="unsupported_audio")
    if request.stream and form != "json":
        raise ApiError(400, "stream: a stream has the form json; leave response_format out", param="stream")
    whisper = sounds.whisper
    if form in ("srt", "vtt") and whisper is None:
        raise ApiError(
            400,
            f"response_format={form!r}: this model says no times, Whisper does; expected json, text or verbose_json, "
            "whose segments are the parts in which a long sound is heard",
            param="response_format",
        )
    params = replace(_params(service, request), adapter=adapter)
    parts = await service.in_thread(lambda: _parts(service, sounds, request.file))
    language = request.language
    if whisper is None:
        tokens = await service.in_thread(lambda: _chats(service, sounds, request, task, parts))
        texts = [PartText(names_language=sounds.family == "qwen3_asr" and not language) for _ in parts]
    else:
        timed = form in ("verbose_json", "srt", "vtt")
        language = whisper_language(whisper, request, task)
        if whisper.languages and language is None:
            language = await _heard(service, http, sounds, whisper, parts[0][2], params)
        before = service.vocabulary.encode(request.prompt or "", special=False)
        tokens = [whisper.prompt(language, task, timed=timed, text=before)] * len(parts)
        params = replace(params, rules=whisper.rules(timed=timed))
        texts = [TimedText(whisper, service.vocabulary) if timed else PartText(names_language=False) for _ in parts]
    try:
        prompts = await service.in_tower_thread(
            lambda: [sounds.place(own, [seen]) for own, (_, _, seen) in zip(tokens, parts, strict=True)]
        )
    except MediaError as error:
        raise ApiError(400, f"prompt: {error}", param="prompt", code="invalid_audio") from None
    if whisper is None or params.temperature:
        answers = Answers(service.engines, service.metrics, service.options.timeout_s)
    else:
        answers = TemperatureFallback(service, whisper, prompts, params)
    await answers.submit(service.executor, prompts, params, 1)
    writer = TranscriptWriter(
        request,
        "english" if task == "translate" else language,
        task,
        texts,
        [(begin, end) for begin, end, _ in parts],
        UsageCount(list(map(len, prompts)), 1),
        sum(seen.tokens for _, _, seen in parts),
        # Whisper that repeats itself goes on until nothing more fits, and its text is as good as it gets.
        may_be_cut=whisper is not None or params.max_tokens is not None,
    )
    if request.stream:
        return EventStream(answers, writer, service.options)
    await finish(http.receive, answers, writer)
    return JsonResponse(writer.body()) if form in ("json", "verbose_json") else PlainTextResponse(writer.plain())


def _params(service: Service, request: TranscriptionRequest) -> SamplingParams:
    """How the text is made; -1 is no limit, as in chats.

    Raises:
        ApiError: 400: A value out of its range.
    """
    most = None if request.max_completion_tokens == -1 else request.max_completion_tokens
    try:
        if most is not None and most < 1:
            raise ValueError(f"max_completion_tokens={most}: expected at least 1, or none for no limit")
        return SamplingParams.of(service.defaults, temperature=request.temperature or 0.0, max_tokens=most)
    except (ValueError, TypeError) as error:
        raise invalid(error) from None


def _parts(service: Service, sounds: SoundPrompts, file: bytes) -> list[Part]:
    """The parts of a sound.

    Raises:
        ApiError: 400: It cannot be read, or has too many.
    """
    try:
        parts = sounds.parts(file)
    except MediaError as error:
        raise ApiError(400, f"file: {error}", param="file", code="invalid_audio") from None
    if len(parts) > (most_parts := service.options.max_choices):
        raise ApiError(
            400,
            f"file: a sound of {parts[-1][1]:.0f} s is heard in {len(parts)} parts; expected at most {most_parts}: "
            "send it in several files",
            param="file",
        )
    return parts


def _chats(
    service: Service, sounds: SoundPrompts, request: TranscriptionRequest, task: Task, parts: Sequence[Part]
) -> list[list[int]]:
    """The tokens of a prompt for each part.

    Raises:
        ApiError: 400: As `question`, or a part does not fit the context.
    """
    messages, begun = question(sounds.family, request, task)
    marks = {"sound": sounds.mark} if sounds.writes_marks else {}
    text = prompt_text(service.template, messages, marks=marks) + begun
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
    return found


async def _heard(
    service: Service, http: Request, sounds: SoundPrompts, whisper: WhisperReader, seen: Seen, params: SamplingParams
) -> str:
    """The likeliest language of a sound, whose token Whisper writes first.

    Raises:
        ApiError, ClientDisconnect: As `Answers`.
    """
    bias = dict.fromkeys(whisper.languages.values(), _SURELY)
    params = replace(params, max_tokens=1, temperature=0.0, logit_bias=bias)
    prompt = await service.in_tower_thread(lambda: sounds.place([whisper.placeholder], [seen]))
    answers, said = Answers(service.engines, service.metrics, service.options.timeout_s), list[int]()
    await answers.submit(service.executor, [prompt], params, 1)
    async with watching(http.receive, answers.abort):
        async for item in answers.events(3600.0):
            said += item[1].token_ids if item is not None else ()
    return next(code for code, token in whisper.languages.items() if token == said[0])
