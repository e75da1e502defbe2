"""Sounds of Whisper: the tokens by which it is asked, and the times that it writes between words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..json_object import read_object
from ..media import Configs, MediaError, Prepared
from ..mixed_prompt import Features
from .mel import HOP, RATE, log_mel
from .wav import SoundError

Task = Literal["transcribe", "translate"]
_MOST_BYTES = 16 << 20  # of a config
_FRAMES_OF_A_ROW = 2
_SECONDS = 0.02  # from one token of time to the next
_ENGLISH_VOCABULARY = 51864  # of OpenAI's .en checkpoints; those of several languages have more


class WhisperReader:
    """A `Reader`: the decoder looks at a sound, which stands at the token that begins its text.

    Args:
        folder: Of the package's tokenizer and configs.
        configs: Of the package.

    Attributes:
        least: samples of the shortest sound.
        part: samples of a part of a sound that is cut.
        languages: ids by code; none for a model of English alone.

    Raises:
        MediaError: The configs or the tokenizer lack something.
    """

    writes_marks = False
    least = HOP

    def __init__(self, folder: Path, configs: Configs):
        rows, self._bins = (self._count(configs, name) for name in ("max_source_positions", "num_mel_bins"))
        self._frames, self._context = _FRAMES_OF_A_ROW * rows, self._count(configs, "max_target_positions")
        self.part = self._frames * HOP
        self.mark = "<|startoftranscript|>"
        self.placeholder = self.stand_in = configs.id_of(self.mark)
        self._id_of, self._untimed = configs.id_of, configs.id_of("<|notimestamps|>")
        told = read_object(folder / "generation_config.json", _MOST_BYTES)
        many = told.get("is_multilingual", configs.config.get("vocab_size") != _ENGLISH_VOCABULARY)
        names = configs.vocabulary if many else {}
        self.languages = {
            name[2:-2]: number for name, number in names.items() if re.fullmatch(r"<\|[a-z]{2,3}\|>", name)
        }
        self._size = self._count(configs, "vocab_size")
        never = told.get("suppress_tokens") or ()
        self._never = frozenset(token for token in never if isinstance(token, int) and 0 <= token < self._size)

    def prepare(self, samples: NDArray[np.float32]) -> Prepared:
        """Counts; runs nothing.

        Raises:
            SoundError: The sound is too short or too long.
        """
        if not self.least <= len(samples) <= self.part:
            raise SoundError(
                f"a sound of {len(samples)} samples; expected {self.least} to {self.part}, {RATE} a second"
            )
        return Prepared(self.mark, (1,), samples)

    def see(self, inputs: Any) -> list[Features]:
        """The token, and what the encoder takes."""
        row = np.array([[self.placeholder]], np.int32)
        return [Features(row, beside=log_mel(inputs, self._bins, self._frames))]

    def before(self, number: int) -> str:
        """Nothing."""
        return ""

    def prompt(self, language: str | None, task: Task, *, timed: bool, text: Sequence[int] = ()) -> list[int]:
        """What the text of a sound follows.

        Args:
            language: A code of `languages`; None for a model of English alone.
            task: To write down what is said, or to translate it into English.
            timed: Times are written between words. The first is given, as vLLM does it.
            text: Tokens of a text before the sound; as many of the last as Whisper takes.
        """
        before = [self._id_of("<|startofprev|>"), *text[-(self._context // 2 - 1) :]] if text else []
        said = [] if language is None else [self.languages[language], self._id_of(f"<|{task}|>")]
        return [*before, self.placeholder, *said, self._untimed + 1 if timed else self._untimed]

    def never(self, *, timed: bool) -> frozenset[int]:
        """Tokens that no text has, with times in it or without."""
        times = (self._untimed,) if timed else range(self._untimed + 1, self._size)
        return self._never | frozenset(times)

    def pieces(self, tokens: Sequence[int], seconds: float) -> list[tuple[float, float, list[int]]]:
        """Text with times, cut at them: begin, end and tokens of each piece of a sound of so many seconds."""
        found, begin, words = [], 0.0, list[int]()
        for token in [*tokens, None]:
            if token is not None and token <= self._untimed:
                words.append(token)
                continue
            time = math.inf if token is None else (token - self._untimed - 1) * _SECONDS
            time = max(begin, min(time, seconds))
            if words:
                found.append((begin, time, words))
            begin, words = time, []
        return found

    @staticmethod
    def _count(configs: Configs, name: str) -> int:
        value = configs.config.get(name)
        if not isinstance(value, int) or value < 1:
            raise MediaError(f"config.json: {name}={value!r:.40}; compile the whole checkpoint, with its config")
        return value
