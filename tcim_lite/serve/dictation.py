"""How models are asked to write down what is said in a sound."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..llm.sounds import Task, WhisperReader
from .errors import ApiError
from .protocol import ContentPart, Message, TranscriptionRequest

_WORDS = re.compile(r"[\w() -]{0,38}\w\)?")
ASR_TAG = "<asr_text>"  # of Qwen3-ASR, between "language NAME" and the text
_LEARNED = "Please transcribe this audio into text"  # the one question of GLM-ASR
# Of Qwen3-ASR: codes, and the names that it writes.
LANGUAGES = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fil": "Filipino",
    "fr": "French",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "mk": "Macedonian",
    "ms": "Malay",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "vi": "Vietnamese",
    "yue": "Cantonese",
    "zh": "Chinese",
}


def question(family: str, request: TranscriptionRequest, task: Task) -> tuple[list[Message], str]:
    """The chat that asks a language model for the text, and how its answer begins.

    Raises:
        ApiError: 400: A field that a model of this family has no place for.
    """
    sound = ContentPart(type="input_audio")
    system = [Message(role="system", content=request.prompt)] if request.prompt else []
    if family in ("glmasr", "qwen3_asr") and task != "transcribe":
        raise ApiError(
            400,
            "/v1/audio/translations: this model has only learned to write down what is said; use "
            "/v1/audio/transcriptions, or serve Whisper, Qwen3-Omni, MiniCPM-o or Gemma 4",
            code="unsupported_audio",
        )
    if family == "glmasr":
        for name in ("language", "prompt"):
            if getattr(request, name):
                raise ApiError(
                    400,
                    f"{name}: GLM-ASR has learned one question, without it; leave it out, or ask at "
                    "/v1/chat/completions",
                    param=name,
                )
        return [Message(role="user", content=[sound, ContentPart(type="text", text=_LEARNED)])], ""
    language = _name(request.language) if request.language else None
    if family != "qwen3_asr":  # a model that does as it is told
        if language is not None and not _WORDS.fullmatch(language):
            raise ApiError(
                400,
                f"language={request.language!r:.40}: expected a code such as de, or a name such as German",
                param="language",
                code="invalid_value",
            )
        if task == "translate":
            told = f"Translate this audio{f' from {language}' if language else ''} into English."
        else:
            told = f"Transcribe this audio{f' into {language}' if language else ''}."
        return [*system, Message(role="user", content=[sound, ContentPart(type="text", text=told)])], ""
    asked = [*system, Message(role="user", content=[sound])]
    if language is None:
        return asked, ""
    if language not in LANGUAGES.values():
        raise _unknown(request.language, "Qwen3-ASR", list(LANGUAGES))
    return asked, f"language {language}{ASR_TAG}"


def whisper_language(whisper: WhisperReader, request: TranscriptionRequest, task: Task) -> str | None:
    """The code of the language that a request names; None where the model has to hear it, or knows one alone.

    Raises:
        ApiError: 400: The model has not learned it.
    """
    asked = request.language
    if not whisper.languages:
        if task != "transcribe" or (asked and asked.lower() not in ("en", "english")):
            raise ApiError(
                400,
                "this model knows English alone, and only writes it down; leave language out, and use "
                "/v1/audio/transcriptions",
                param="language",
            )
        return None
    if not asked:
        return None
    codes = {name: code for code, name in LANGUAGES.items()}
    code = codes.get(asked.capitalize(), asked.lower())
    if code not in whisper.languages:
        raise _unknown(asked, "this Whisper", sorted(whisper.languages))
    return code


def _name(language: str) -> str:
    return LANGUAGES.get(language.lower(), language.capitalize())


def _unknown(asked: str | None, who: str, known: Sequence[str]) -> ApiError:
    return ApiError(
        400,
        f"language={asked!r:.40}: {who} has not learned it; expected one of {', '.join(known)}, or leave it out",
        param="language",
        code="invalid_value",
    )
