"""The text of a transcription, from the answers to the parts of its sound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..llm.engine import Event
from .errors import ApiError
from .protocol import TranscriptionRequest
from .usage import UsageCount

ASR_TAG = "<asr_text>"  # of Qwen3-ASR, between "language NAME" and the text
_BEFORE_TAG = "language "
_MOST_BEFORE_TAG = 60  # characters
_FIRST_WIDE = 0x2E80  # from here on, scripts of East Asia, which have no blanks between words
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


class PartText:
    """What is said in one part of a sound, as it comes.

    Args:
        names_language: The answer may begin with "language NAME" and a tag.

    Attributes:
        text: so far, without blanks at its ends.
        language: that the model named, if it did.
        has_ended: nothing more comes.
    """

    def __init__(self, names_language: bool):
        self.text, self.has_ended = "", False
        self.language: str | None = None
        self._raw, self._is_text = "", not names_language

    def add(self, text: str, ends: bool) -> None:
        """Takes what the model wrote."""
        self._raw += text
        self.has_ended = ends
        if not self._is_text:
            before, tag, behind = self._raw.partition(ASR_TAG)
            begin = before.lstrip()
            if tag:
                name = begin.strip().removeprefix(_BEFORE_TAG).strip()
                self.language = name if name and name != "None" else None
                self._raw = behind
            may_come = begin[: len(_BEFORE_TAG)] == _BEFORE_TAG[: len(begin)] and len(begin) < _MOST_BEFORE_TAG
            self._is_text = bool(tag) or ends or not may_come
        if self._is_text:
            self.text = self._raw.strip()


class TranscriptWriter:
    """Writes a transcription; a `Writer`.

    Args:
        request: What is asked for.
        family: As in `SoundPrompts`.
        times: Begin and end of each part, in seconds.
        usage: Counts tokens.
        sound_tokens: How many of the prompts are of sounds.
    """

    last = b"data: [DONE]\n\n"

    def __init__(
        self,
        request: TranscriptionRequest,
        family: str,
        times: Sequence[tuple[float, float]],
        usage: UsageCount,
        sound_tokens: int,
    ):
        self._request, self._times, self._usage, self._sound_tokens = request, times, usage, sound_tokens
        self._parts = [PartText(family == "qwen3_asr" and not request.language) for _ in times]
        self._shown = ""  # of a stream

    @property
    def text(self) -> str:
        """All that was said up to the first part that is not whole, and of that what there is."""
        made = ""
        for part in self._parts:
            made += _gap(made, part.text) + part.text
            if not part.has_ended:
                break
        return made

    def begin(self) -> list[dict[str, Any]]:
        return []

    def add(self, index: int, event: Event) -> list[dict[str, Any]]:
        self._usage.add(index, event)
        if event.finish_reason == "length" and self._request.max_completion_tokens is None:
            raise ApiError(
                400,
                "the context was full before the text of the sound ended; compile with a larger --context-length or "
                "fewer --audio-frames",
                param="file",
                code="context_length_exceeded",
            )
        self._parts[index].add(event.text, event.finish_reason is not None)
        before, self._shown = self._shown, self.text
        delta = self._shown[len(before) :]
        return [{"type": "transcript.text.delta", "delta": delta}] if delta else []

    def end(self) -> list[dict[str, Any]]:
        return [{"type": "transcript.text.done", "text": self.text, "usage": self._tokens()}]

    def fail(self, error: ApiError) -> list[dict[str, Any]]:
        return [error.body()]

    def body(self) -> dict[str, Any]:
        if self._request.response_format != "verbose_json":
            return {"text": self.text, "usage": self._tokens()}
        segments = [
            {"id": index, "start": round(begin, 3), "end": round(end, 3), "text": part.text}
            for index, ((begin, end), part) in enumerate(zip(self._times, self._parts, strict=True))
        ]
        seconds = self._times[-1][1]
        return {
            "task": "transcribe",
            "language": self._language(),
            "duration": round(seconds, 3),
            "text": self.text,
            "segments": segments,
            "usage": {"type": "duration", "seconds": math.ceil(seconds)},
        }

    def _language(self) -> str | None:
        """As OpenAI writes it, "english"; of the first part that has one."""
        asked = self._request.language
        named = LANGUAGES.get(asked.lower(), asked) if asked else None
        found = named or next((part.language for part in self._parts if part.language), None)
        return found.lower() if found else None

    def _tokens(self) -> dict[str, Any]:
        used = self._usage.body()
        sound = self._sound_tokens
        return {
            "type": "tokens",
            "input_tokens": used["prompt_tokens"],
            "input_token_details": {"audio_tokens": sound, "text_tokens": used["prompt_tokens"] - sound},
            "output_tokens": used["completion_tokens"],
            "total_tokens": used["total_tokens"],
        }


def _gap(before: str, behind: str) -> str:
    """What stands between two parts of a text."""
    if not before or not behind:
        return ""
    return "" if ord(before[-1]) >= _FIRST_WIDE and ord(behind[0]) >= _FIRST_WIDE else " "
