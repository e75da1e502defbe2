"""Sounds of Whisper: the tokens by which it is asked, and the times that it writes between words."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..json_object import read_object
from ..media import Configs, MediaError, Prepared, Seen
from ..mixed_prompt import Features
from .mel import HOP, RATE, log_mel
from .wav import SoundError
from .windows import FRAMES_OF_A_ROW, LongSound, Segment, cut, without_last_time

Task = Literal["transcribe", "translate"]
_ENGLISH_VOCABULARY = 51864  # of OpenAI's .en checkpoints; those of several languages have more


@dataclass(frozen=True, kw_only=True)
class TextRules:
    """What a text consists of, as transformers and OpenAI's own program have it; `Rules` of the engine.

    Attributes:
        never: tokens that no text has.
        not_first: tokens that begin none.
        first_time: id of the time 0; all behind it are times.
        end: id of the token that ends a text; those before it are words.
        latest_begin: how many times after 0 a text may begin at most; None for any.
        timed: a text begins with a time, and has two at each cut: the end of a piece, and the begin of the next. Only
            the end of the text may follow one alone. They do not decrease, and no piece is empty.
    """

    never: frozenset[int]
    not_first: frozenset[int]
    first_time: int
    end: int
    latest_begin: int | None
    timed: bool

    def allowed(self, answer: Sequence[int], logits: NDArray[Any]) -> NDArray[np.bool_]:
        """As `Rules.allowed`."""
        allowed = np.ones(logits.size, bool)
        allowed[list(self.never if answer else self.never | self.not_first)] = False
        if self.timed:
            self._time(allowed, answer, logits.astype(np.float32))
        else:
            allowed[self.first_time :] = False
        return allowed

    def _time(self, allowed: NDArray[np.bool_], answer: Sequence[int], logits: NDArray[np.float32]) -> None:
        first = self.first_time
        allowed[first - 1] = False  # which says that there are no times
        times = [token for token in answer if token >= first]
        has_begun = len(answer) > 0 and answer[-1] >= first
        has_ended = has_begun and len(answer) > 1 and answer[-2] < first  # a piece, and none has begun
        if has_ended:
            allowed[: self.end] = False
        elif has_begun:
            allowed[first:] = False
        if times:
            allowed[first : times[-1] + (not has_ended)] = False
        if not answer:
            allowed[:first] = False
            if self.latest_begin is not None:
                allowed[first + self.latest_begin + 1 :] = False
        words, others = logits[:first][allowed[:first]], logits[first:][allowed[first:]]
        # A time comes if it is likelier that any comes than that the likeliest word does.
        if words.size and others.size:
            most = others.max()
            if most + np.log(np.exp(others - most).sum()) > words.max():
                allowed[:first] = False


@dataclass(frozen=True, kw_only=True)
class FallbackThresholds:
    """When a text is doubtful and is made again, as in transformers; None turns a threshold off.

    Attributes:
        compression_ratio: of a text's tokens; above it, the text repeats itself.
        logprob: mean logarithm of the probabilities of its tokens; below it, the text is unlikely.
        no_speech: probability that nobody speaks; above it, an unlikely text is left out.
    """

    compression_ratio: float | None
    logprob: float | None
    no_speech: float | None

    def repeats(self, ratio: float) -> bool:
        """Whether a text of this `ratio` says the same again and again."""
        return self.compression_ratio is not None and ratio > self.compression_ratio

    @staticmethod
    def ratio(tokens: Sequence[int], vocab_size: int) -> float:
        """By how much the tokens of a text can be compressed."""
        data = b"".join(token.to_bytes(int(math.log2(vocab_size) / 8) + 1, "little") for token in tokens)
        return len(data) / len(zlib.compress(data))

    def is_unlikely(self, mean: float) -> bool:
        """Whether a text has this mean of logarithms."""
        return self.logprob is not None and mean < self.logprob


class WhisperReader:
    """A `Reader`: the decoder looks at a sound, which stands at the token that begins its text.

    Args:
        folder: Of the package's tokenizer and configs.
        configs: Of the package.

    Attributes:
        least: samples of the shortest sound.
        part: samples of a window.
        thresholds: those of OpenAI's program, unless generation_config.json has others.
        no_speech: the token that says that nobody speaks.
        conditions: the text of a window follows those before it; as in OpenAI's program, unless generation_config.json
            says otherwise.
        size: of the vocabulary.
        languages: ids by code; none for a model of English alone.

    Raises:
        MediaError: The configs or the tokenizer lack something.
    """

    writes_marks = False
    least = HOP

    def __init__(self, folder: Path, configs: Configs):
        rows, self._bins = (self._count(configs, name) for name in ("max_source_positions", "num_mel_bins"))
        self._frames, self._context = FRAMES_OF_A_ROW * rows, self._count(configs, "max_target_positions")
        self.part = self._frames * HOP
        self.mark = "<|startoftranscript|>"
        self.placeholder = self.stand_in = configs.id_of(self.mark)
        self._id_of, self._untimed = configs.id_of, configs.id_of("<|notimestamps|>")
        told = read_object(folder / "generation_config.json")
        many = told.get("is_multilingual", configs.config.get("vocab_size") != _ENGLISH_VOCABULARY)
        # A tokenizer may have other short names, such as <|pad|>; earlier files list no languages.
        listed = told.get("lang_to_id")
        names = [name for name in (listed if isinstance(listed, dict) else configs.vocabulary) if many]
        self.languages = {name[2:-2]: configs.id_of(name) for name in names if re.fullmatch(r"<\|[a-z]{2,3}\|>", name)}
        self.size = self._count(configs, "vocab_size")
        self._told = told
        self.no_speech = self._untimed - 1
        self.thresholds = FallbackThresholds(
            compression_ratio=self._threshold("compression_ratio_threshold", 2.4),
            logprob=self._threshold("logprob_threshold", -1.0),
            no_speech=self._threshold("no_speech_threshold", 0.6),
        )
        conditions = told.get("condition_on_prev_tokens")
        if conditions is not None and not isinstance(conditions, bool):
            raise MediaError(
                f"generation_config.json: condition_on_prev_tokens={conditions!r:.40}; expected true, false or null"
            )
        self.conditions = conditions is not False
        ends = self._listed("eos_token_id") or self._listed("eos_token_id", configs.config)
        self._end = min(ends, default=self.placeholder)

    def prepare(self, samples: NDArray[np.float32]) -> Prepared:
        """Features of a sound of one window; runs nothing.

        Raises:
            SoundError: The sound is too short or too long.
        """
        if not self.least <= len(samples) <= self.part:
            raise SoundError(
                f"a sound of {len(samples)} samples; expected {self.least} to {self.part}, {RATE} a second"
            )
        return Prepared(self.mark, (1,), log_mel(samples, self._bins, self._frames))

    def see(self, inputs: Any) -> list[Features]:
        """The token, and what the encoder takes."""
        return [Features(np.array([[self.placeholder]], np.int32), beside=inputs)]

    def listen(self, samples: NDArray[np.float32]) -> LongSound:
        """A sound of any length, in windows.

        Raises:
            SoundError: The sound is too short.
        """
        if len(samples) < self.least:
            raise SoundError(f"a sound of {len(samples)} samples; expected {self.least} or more, {RATE} a second")
        return LongSound(samples, self._bins, self._frames)

    def window(self, sound: LongSound, seek: int) -> Seen:
        """What the encoder hears of a sound from frame `seek` on."""
        return Seen(Prepared(self.mark, (1,), sound.window(seek)))

    def before(self, number: int) -> str:
        """Nothing."""
        return ""

    def prompt(self, language: str | None, task: Task, *, timed: bool, text: Sequence[int] = ()) -> list[int]:
        """What the text of a sound follows.

        Args:
            language: A code of `languages`; None for a model of English alone.
            task: To write down what is said, or to translate it into English.
            timed: Times are written between words.
            text: Tokens of a text before the sound; as many of the last as Whisper takes.
        """
        before = [self._id_of("<|startofprev|>"), *text[-(self._context // 2 - 1) :]] if text else []
        said = [] if language is None else [self.languages[language], self._id_of(f"<|{task}|>")]
        return [*before, self.placeholder, *said, *([] if timed else [self._untimed])]

    def rules(self, *, timed: bool) -> TextRules:
        """Of texts with times between words or without."""
        latest = self._told.get("max_initial_timestamp_index")
        return TextRules(
            never=self._listed("suppress_tokens"),
            not_first=self._listed("begin_suppress_tokens"),
            first_time=self._untimed + 1,
            end=self._end,
            latest_begin=latest if isinstance(latest, int) and latest >= 0 else None,
            timed=timed,
        )

    def cut(self, tokens: Sequence[int], sound: LongSound, seek: int) -> tuple[list[Segment], int]:
        """As `windows.cut`, of the text of the window that begins at frame `seek`."""
        return cut(tokens, self._untimed + 1, seek, sound.frames_from(seek))

    def remembered(self, segments: Sequence[Segment]) -> list[int]:
        """The tokens of a text that the next window is told of."""
        return [token for segment in segments for token in without_last_time(segment, self._untimed + 1)]

    def words(self, tokens: Sequence[int]) -> list[int]:
        """Those that are no times."""
        return [token for token in tokens if token <= self._untimed]

    def _threshold(self, name: str, absent: float) -> float | None:
        value = self._told.get(name, absent)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise MediaError(f"generation_config.json: {name}={value!r:.40}; expected a number, or null")
        return value

    def _listed(self, name: str, config: Mapping[str, Any] | None = None) -> frozenset[int]:
        """Tokens of the vocabulary in a list of generation_config.json, or of another config, or one alone."""
        value = (self._told if config is None else config).get(name)
        tokens = value if isinstance(value, list) else [value]
        return frozenset(token for token in tokens if isinstance(token, int) and 0 <= token < self.size)

    @staticmethod
    def _count(configs: Configs, name: str) -> int:
        value = configs.config.get(name)
        if not isinstance(value, int) or value < 1:
            raise MediaError(f"config.json: {name}={value!r:.40}; compile the whole checkpoint, with its config")
        return value
