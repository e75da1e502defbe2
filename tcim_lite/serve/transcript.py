"""The text of a transcription, from the answers to the parts of its sound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..llm.engine import Event
from ..llm.sounds import Segment, Task
from .dictation import ASR_TAG, LANGUAGES
from .errors import ApiError
from .protocol import TranscriptionRequest
from .streams import COMMENT
from .usage import UsageCount

_BEFORE_TAG = "language "
_MOST_BEFORE_TAG = 60  # characters
_FIRST_WIDE = 0x2E80  # from here on, scripts of East Asia, which have no blanks between words
_DIGITS = 3  # of seconds


class PartText:
    """What is said in one part of a sound, as it comes.

    Args:
        begin: In seconds from the begin of the sound.
        end: Likewise.
        sound_tokens: How many tokens of its prompt are of the sound.
        names_language: The answer may begin with "language NAME" and a tag.

    Attributes:
        text: so far, without blanks at its ends.
        sound_tokens: as given.
        language: that the model named, if it did.
        has_ended: nothing more comes.
    """

    def __init__(self, begin: float, end: float, sound_tokens: int, *, names_language: bool):
        self.text, self.has_ended, self.sound_tokens = "", False, sound_tokens
        self._times = begin, end
        self.language: str | None = None
        self._raw, self._is_text = "", not names_language

    def take(self, event: Event) -> None:
        """Takes what the model wrote."""
        self.add(event.text, event.finish_reason is not None)

    def behind(self, before: str) -> str:
        """The text up to here, if that before this part is `before`."""
        return before + _gap(before, self.text) + self.text

    def segments(self) -> list[dict[str, Any]]:
        """The text with times, as OpenAI writes it, without ids."""
        begin, end = (round(time, _DIGITS) for time in self._times)
        return [{"start": begin, "end": end, "text": " ".join(self.text.split())}]

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


class WindowText(PartText):
    """What Whisper said in a window.

    Args:
        pieces: Of the text.
        seconds: How long the sound is.
        seek: The frame at which the window begins.
        temperature: At which the text was made.
        mean_logprob: Mean of the logarithms of its tokens' probabilities.
        compression_ratio: Of its tokens.
        no_speech: How probable it was that nobody speaks, if that is known.
    """

    def __init__(
        self,
        pieces: Sequence[tuple[Segment, str]],
        *,
        seconds: float,
        seek: int,
        temperature: float,
        mean_logprob: float,
        compression_ratio: float,
        no_speech: float | None,
    ):
        super().__init__(0.0, seconds, 1, names_language=False)
        self._pieces, self._raw, self.has_ended = pieces, "".join(text for _, text in pieces), True
        self.text = self._raw.strip()
        self._figures = {
            "temperature": temperature,
            "avg_logprob": mean_logprob,
            "compression_ratio": compression_ratio,
            "no_speech_prob": no_speech,
        }
        self._seek = seek

    def take(self, event: Event) -> None:
        """Nothing: the text is whole."""

    def behind(self, before: str) -> str:
        return before + self._raw  # words have their blanks

    def segments(self) -> list[dict[str, Any]]:
        most = self._times[1]
        return [
            {
                "seek": self._seek,
                "start": round(min(segment.begin, most), _DIGITS),
                "end": round(min(segment.end, most), _DIGITS),
                "text": " ".join(text.split()),
                "tokens": segment.tokens,
                **self._figures,
            }
            for segment, text in self._pieces
            if text.strip()
        ]


class TranscriptWriter:
    """Writes a transcription; a `Writer`.

    Args:
        request: What is asked for.
        language: Of the text, a code or a name; None where the model may name it.
        task: Which route is asked.
        parts: Of the text; there may be more of them with each event.
        seconds: How long the sound is.
        usage: Counts tokens.
        may_be_cut: A text that ends because nothing more fits is no error.
    """

    last, ping = b"data: [DONE]\n\n", COMMENT

    def __init__(
        self,
        request: TranscriptionRequest,
        language: str | None,
        task: Task,
        parts: Sequence[PartText],
        seconds: float,
        usage: UsageCount,
        *,
        may_be_cut: bool,
    ):
        self._request, self._asked, self._task, self._parts = request, language, task, parts
        self._seconds, self._usage, self._may_be_cut = seconds, usage, may_be_cut
        self._shown = ""  # of a stream

    @property
    def text(self) -> str:
        """All that was said up to the first part that is not whole, and of that what there is."""
        made = ""
        for part in self._parts:
            made = part.behind(made)
            if not part.has_ended:
                break
        return made.strip()

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
        return {
            "task": self._task,
            "language": self._language(),
            "duration": round(self._seconds, _DIGITS),
            "text": self.text,
            "segments": [{"id": index, **segment} for index, segment in enumerate(self._segments())],
            "usage": {"type": "duration", "seconds": math.ceil(self._seconds)},
        }

    def plain(self) -> str:
        """The form that is no JSON: text, or that with times of srt or vtt."""
        form = self._request.response_format
        if form == "text":
            return self.text
        point = "," if form == "srt" else "."
        shown = [spoken for spoken in self._segments() if _clock(spoken["start"], "") < _clock(spoken["end"], "")]
        lines = [
            f"{_clock(spoken['start'], point)} --> {_clock(spoken['end'], point)}\n{spoken['text']}\n"
            for spoken in shown  # no player shows a piece without length, and WebVTT allows none
        ]
        if form == "srt":
            return "\n".join(f"{number}\n{line}" for number, line in enumerate(lines, 1))
        return "\n".join(["WEBVTT\n", *lines])

    def _segments(self) -> list[dict[str, Any]]:
        """All that was said, with times in the whole sound."""
        return [segment for part in self._parts for segment in part.segments()]

    def _language(self) -> str | None:
        """As OpenAI writes it, "english"; of the first part that has one."""
        named = LANGUAGES.get(self._asked.lower(), self._asked) if self._asked else None
        found = named or next((part.language for part in self._parts if part.language), None)
        return found.lower() if found else None

    def _tokens(self) -> dict[str, Any]:
        used = self._usage.body()
        sound = sum(part.sound_tokens for part in self._parts)
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
