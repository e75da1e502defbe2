"""Long sounds of Whisper: one window after the other; the text of each says where the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .mel import HOP, RATE, log_mel, long_log_mel

FRAMES_OF_A_ROW = 2  # of the encoder, which is also the step of times
SECONDS_OF_A_TIME = FRAMES_OF_A_ROW * HOP / RATE


@dataclass(frozen=True)
class Segment:
    """A piece of a text.

    Attributes:
        begin: in seconds from the begin of the whole sound.
        end: likewise.
        tokens: words and times, from that of its begin to that of its end. The last piece of a window may also have the
            time at which the next window begins.
    """

    begin: float
    end: float
    tokens: tuple[int, ...]


class LongSound:
    """A sound of any length.

    Args:
        samples: `RATE` a second, in -1 .. 1.
        bins: Of the features.
        window: How many frames the encoder takes.

    Attributes:
        seconds: how long it is.
        frames: how many pieces of `HOP` samples it has.
        is_long: longer than a window.
    """

    def __init__(self, samples: NDArray[np.float32], bins: int, window: int):
        self.seconds, self.frames, self._window = len(samples) / RATE, len(samples) // HOP, window
        self.is_long = self.frames > window
        # As transformers: a short sound is filled up with silence, a long one is scaled by its loudest place.
        self._mel = long_log_mel(samples, bins, window) if self.is_long else log_mel(samples, bins, window)

    def window(self, seek: int) -> NDArray[np.float32]:
        """The features [1, bins, window] from frame `seek` on; zeros behind the last."""
        piece = self._mel[:, :, seek : seek + self._window]
        found = np.zeros((1, piece.shape[1], self._window), np.float32)
        found[:, :, : piece.shape[2]] = piece
        return found

    def frames_from(self, seek: int) -> int:
        """How many frames of the sound a window that begins at frame `seek` has."""
        return min(self._window, self.frames - seek)


def cut(tokens: Sequence[int], first_time: int, seek: int, frames: int) -> tuple[list[Segment], int]:
    """The pieces of the text of a window, and at which frame the next window begins, as in transformers.

    Two times side by side end a piece and begin the next. The last of these cuts is where the next window begins, and
    what follows it is heard again, unless the text ends with a time alone: then nobody speaks behind it. A text without
    cuts is one piece from the begin of the window on.

    Args:
        tokens: Words and times, without the end of the text.
        first_time: Id of the time 0; all behind it are times.
        seek: The frame at which the window begins.
        frames: How many the window has of the sound.
    """
    begin, times = seek * HOP / RATE, [token - first_time for token in tokens]
    cuts = [place for place in range(1, len(times)) if times[place - 1] >= 0 <= times[place]]
    if not cuts:
        said = [time for time in times if time >= 0]
        last = said[-1] if said and said[-1] > 0 else frames // FRAMES_OF_A_ROW
        return [Segment(begin, begin + last * SECONDS_OF_A_TIME, tuple(tokens))], seek + frames
    ends_alone = times[-1] >= 0 > times[-2]
    ends = [*cuts, len(tokens)] if ends_alone else [*cuts[:-1], cuts[-1] + 1]
    found = []
    for first, end in zip([0, *ends], ends, strict=False):
        last = times[end - 1 if ends_alone or end != ends[-1] else end - 2]
        a, b = (begin + time * SECONDS_OF_A_TIME for time in (times[first], last))
        found.append(Segment(a, b, tuple(tokens[first:end])))
    return found, seek + (frames if ends_alone else times[cuts[-1] - 1] * FRAMES_OF_A_ROW)


def without_last_time(segment: Segment, first_time: int) -> tuple[int, ...]:
    """The tokens of a piece as the next window is told of them: one time at the end, not two."""
    tokens = segment.tokens
    return tokens[:-1] if len(tokens) > 2 and tokens[-2] >= first_time else tokens
