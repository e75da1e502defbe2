"""The text of a transcription, from the answers to the parts of its sound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..llm.engine import Event
from ..llm.sounds import Task, WhisperReader
from .dictation import ASR_TAG, LANGUAGES
from .errors import ApiError
from .protocol import TranscriptionRequest
from .usage import UsageCount
from .vocabulary import Vocabulary

_BEFORE_TAG = "language "
_MOST_BEFORE_TAG = 60  # characters
_FIRST_WIDE = 0x2E80  # from here on, scripts of East Asia, which have no blanks between words
Piece = tuple[float, float, str]  # begin and end in seconds, and what is said between them


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

    def take(self, event: Event) -> None:
        """Takes what the model wrote."""
        self.add(event.text, event.finish_reason is not None)

    def pieces(self, seconds: float) -> list[Piece]:
        """The text with times, in a part of so many seconds."""
        return [(0.0, seconds, self.text)]

    def add(self, text: str, ends: bool) -> None:
        """As `take`, of text that is the last or not."""
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


class TimedText(PartText):
    """As `PartText`, of Whisper, which writes times between words; its text is there at the end."""

    def __init__(self, whisper: WhisperReader, vocabulary: Vocabulary):
        super().__init__(names_language=False)
        self._whisper, self._vocabulary, self._tokens = whisper, vocabulary, list[int]()

    def take(self, event: Event) -> None:
        self._tokens += event.token_ids
        self.has_ended = event.finish_reason is not None
        if self.has_ended:
            self.text = "".join(text for _, _, text in self.pieces(math.inf)).strip()

    def pieces(self, seconds: float) -> list[Piece]:
        cut = self._whisper.pieces(self._tokens, seconds)
        return [(begin, end, self._vocabulary.decode(tokens)) for begin, end, tokens in cut]


class TranscriptWriter:
    """Writes a transcription; a `Writer`.

    Args:
        request: What is asked for.
        language: Of the text, a code or a name; None where the model may name it.
        task: Which route is asked.
        parts: Of the text.
        times: Begin and end of each part, in seconds.
        usage: Counts tokens.
        sound_tokens: How many of the prompts are of sounds.
        may_be_cut: A text that ends because nothing more fits is no error.
    """

    last = b"data: [DONE]\n\n"

    def __init__(
        self,
        request: TranscriptionRequest,
        language: str | None,
        task: Task,
        parts: Sequence[PartText],
        times: Sequence[tuple[float, float]],
        usage: UsageCount,
        sound_tokens: int,
        *,
        may_be_cut: bool,
    ):
        self._request, self._asked, self._task, self._parts = request, language, task, parts
        self._times, self._usage, self._sound_tokens, self._may_be_cut = times, usage, sound_tokens, may_be_cut
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
        if event.finish_reason == "length" and not self._may_be_cut:
            raise ApiError(
                400,
                "the context was full before the text of the sound ended; compile with a larger --context-length or "
                "fewer --audio-frames",
                param="file",
                code="context_length_exceeded",
            )
        self._parts[index].take(event)
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
            {"id": index, "start": round(begin, 3), "end": round(end, 3), "text": text}
            for index, (begin, end, text) in enumerate(self._pieces())
        ]
        seconds = self._times[-1][1]
        return {
            "task": self._task,
            "language": self._language(),
            "duration": round(seconds, 3),
            "text": self.text,
            "segments": segments,
            "usage": {"type": "duration", "seconds": math.ceil(seconds)},
        }

    def plain(self) -> str:
        """The form that is no JSON: text, or that with times of srt or vtt."""
        form = self._request.response_format
        if form == "text":
            return self.text
        spoken = [piece for piece in self._pieces() if piece[2]]
        if form == "srt":
            lines = [
                f"{i}\n{_clock(b, ',')} --> {_clock(e, ',')}\n{text}\n" for i, (b, e, text) in enumerate(spoken, 1)
            ]
        else:
            lines = ["WEBVTT\n", *(f"{_clock(b, '.')} --> {_clock(e, '.')}\n{text}\n" for b, e, text in spoken)]
        return "\n".join(lines)

    def _pieces(self) -> Iterator[Piece]:
        """All that was said, with times in the whole sound."""
        for part, (begin, end) in zip(self._parts, self._times, strict=True):
            yield from ((begin + a, begin + b, " ".join(text.split())) for a, b, text in part.pieces(end - begin))

    def _language(self) -> str | None:
        """As OpenAI writes it, "english"; of the first part that has one."""
        named = LANGUAGES.get(self._asked.lower(), self._asked) if self._asked else None
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


def _clock(seconds: float, point: str) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3600000:02}:{whole // 60000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"
