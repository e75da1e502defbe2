"""Sounds in prompts: from the bytes of a WAV file to features among tokens (docs/speech.md)."""

from ..media import MediaError, MediaPrompts, Seen
from .mel import HOP, RATE, log_mel
from .prompts import SoundPrompts
from .wav import SoundError, read_wav, resampled
from .whisper import Task, WhisperReader
from .windows import LongSound, Segment

__all__ = [
    "HOP",
    "RATE",
    "LongSound",
    "MediaError",
    "MediaPrompts",
    "Seen",
    "Segment",
    "SoundError",
    "SoundPrompts",
    "Task",
    "WhisperReader",
    "log_mel",
    "read_wav",
    "resampled",
]
