"""/v1/audio/transcriptions and translations: what is said in a sound, by Whisper and by models whose chats hear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..llm.engine import SamplingParams
from ..llm.media import MediaError, Seen
from ..llm.sounds import LongSound, SoundPrompts, Task, WhisperReader, read_wav
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
from .transcript import PartText, TranscriptWriter, WindowText
from .usage import UsageCount
from .whisper_answers import Question, WhisperAnswers

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
    service.check_writes()
    sounds, form = service.sounds, request.response_format or "json"
    if isinstance(sounds, str):
        raise ApiError(400, f"{http.url.path}: {sounds}", code="unsupported_audio")
    if request.stream and form != "json":
        raise ApiError(400, "stream: a stream has the form json; leave response_format out", param="stream")
    if "word" in (request.timestamp_granularities or ()):
        raise ApiError(
            400,
            "timestamp_granularities[]: times of words need the scores of the decoder's attention, which no graph "
            "returns; leave it out, or ask for segment, whose times Whisper writes itself",
            param="timestamp_granularities[]",
            code="unsupported_parameter",
        )
    params = replace(_params(service, request), adapter=adapter)
    if sounds.whisper is None:
        answers, writer = await _by_chats(service, sounds, request, task, params)
    else:
        answers, writer = await _by_whisper(service, http, sounds, sounds.whisper, request, task, params)
    if request.stream:
        return EventStream(answers, writer, service.options)
    await finish(http.receive, answers, writer)
    return JsonResponse(writer.body()) if form in ("json", "verbose_json") else PlainTextResponse(writer.plain())


async def _by_whisper(
    service: Service,
    http: Request,
    sounds: SoundPrompts,
    whisper: WhisperReader,
    request: TranscriptionRequest,
    task: Task,
    params: SamplingParams,
) -> tuple[Answers, TranscriptWriter]:
    """The answers of Whisper, which hears one window after the other."""
    form, language = request.response_format, whisper_language(whisper, request, task)
    sound = await service.in_thread(lambda: _whole(whisper, request.file))
    if whisper.languages and language is None:
        language = await _heard(service, http, sounds, whisper, whisper.window(sound, 0), params)
    asked = request.condition_on_previous_text
    question = Question(
        language=language,
        task=task,
        timed=sound.is_long or form in ("verbose_json", "srt", "vtt"),
        before=service.vocabulary.encode(request.prompt or "", special=False),
        conditions=whisper.conditions if asked is None else asked,
        tells_all=form == "verbose_json",
    )
    texts, usage = list[WindowText](), UsageCount([], 1)
    answers = WhisperAnswers(service, sounds, whisper, sound, question, params, texts, usage)
    await answers.begin()
    # Whisper that repeats itself goes on until nothing more fits, and its text is as good as it gets.
    named = "english" if task == "translate" else language
    return answers, TranscriptWriter(request, named, task, texts, sound.seconds, usage, may_be_cut=True)


async def _by_chats(
    service: Service, sounds: SoundPrompts, request: TranscriptionRequest, task: Task, params: SamplingParams
) -> tuple[Answers, TranscriptWriter]:
    """The answers of a language model, which is asked about all parts of a sound at once."""
    form, language = request.response_format, request.language
    if form in ("srt", "vtt"):
        raise ApiError(
            400,
            f"response_format={form!r}: this model says no times, Whisper does; expected json, text or verbose_json, "
            "whose segments are the parts in which a long sound is heard",
            param="response_format",
        )
    if request.condition_on_previous_text:
        raise ApiError(
            400,
            "condition_on_previous_text: the parts of a sound are heard apart, but by Whisper; leave it out",
            param="condition_on_previous_text",
        )
    parts = await service.in_thread(lambda: _parts(service, sounds, request.file))
    tokens = await service.in_thread(lambda: _chats(service, sounds, request, task, parts))
    names = sounds.family == "qwen3_asr" and not language
    texts = [PartText(begin, end, seen.tokens, names_language=names) for begin, end, seen in parts]
    try:
        prompts = await service.in_tower_thread(
            lambda: [sounds.place(own, [seen]) for own, (_, _, seen) in zip(tokens, parts, strict=True)]
        )
    except MediaError as error:
        raise ApiError(400, f"prompt: {error}", param="prompt", code="invalid_audio") from None
    answers = Answers(service.engines, service.metrics, service.options.timeout_s)
    await answers.submit(service.executor, prompts, params, 1)
    usage, seconds = UsageCount(list(map(len, prompts)), 1), parts[-1][1]
    named = "english" if task == "translate" else language
    may_be_cut = params.max_tokens is not None
    return answers, TranscriptWriter(request, named, task, texts, seconds, usage, may_be_cut=may_be_cut)


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


def _whole(whisper: WhisperReader, file: bytes) -> LongSound:
    """A sound.

    Raises:
        ApiError: 400: It cannot be read, or is too short.
    """
    try:
        return whisper.listen(read_wav(file))
    except MediaError as error:
        raise ApiError(400, f"file: {error}", param="file", code="invalid_audio") from None


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
    params = replace(params, max_tokens=1, temperature=0.0, logit_bias=bias, ignore_eos=True)
    prompt = await service.in_tower_thread(lambda: sounds.place([whisper.placeholder], [seen]))
    answers, said = Answers(service.engines, service.metrics, service.options.timeout_s), list[int]()
    await answers.submit(service.executor, [prompt], params, 1)
    async with watching(http.receive, answers.abort):
        async for item in answers.events(3600.0):
            said += item[1].token_ids if item is not None else ()
    return next(code for code, token in whisper.languages.items() if token == said[0])
