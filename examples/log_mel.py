"""Sounds as speech models take them: WAV files, and log-mel features computed with numpy."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

RATE, WINDOW, HOP = 16000, 400, 160  # samples a second, in a window, from one window to the next


def read_wav(path: Path) -> np.ndarray:
    """The samples of a file of 16 kHz, in -1 .. 1; several channels become their mean."""
    try:
        with wave.open(str(path)) as file:
            rate, width, channels = file.getframerate(), file.getsampwidth(), file.getnchannels()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        why = str(error) or "the file is cut short"
        raise ValueError(f"{path}: {why}; expected a WAV file of PCM samples") from None
    if rate != RATE or width not in (2, 4):
        raise ValueError(
            f"{path} has {rate} samples a second of {8 * width} bits, expected {RATE} of 16 or 32; convert it, for "
            f"example with `ffmpeg -i {path.name} -ar {RATE} -sample_fmt s16 OUT.wav`"
        )
    data = data[: len(data) // (width * channels) * (width * channels)]  # a file that is cut short may end anywhere
    samples = np.frombuffer(data, f"<i{width}").astype(np.float32) / 2.0 ** (8 * width - 1)
    return samples.reshape(-1, channels).mean(axis=1)


def mel_filters(bins: int) -> np.ndarray:
    """[bins, frequencies]: triangles of equal area to 8 kHz, on Slaney's scale: even to 1 kHz, then geometric."""
    step, log_step = 200 / 3, np.log(6.4) / 27
    highest = 15 + np.log(RATE / 2 / 1000) / log_step
    mels = np.linspace(0, highest, bins + 2)
    edges = np.where(mels < 15, mels * step, 1000 * np.exp(log_step * (mels - 15)))
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    up = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    return np.maximum(np.minimum(up, down), 0) * (2 / (edges[2:] - edges[:-2]))[:, None]


def log_mel(samples: np.ndarray, bins: int, frames: int) -> np.ndarray:
    """[1, bins, frames] float32, as WhisperFeatureExtractor makes them; the sound is cut or filled with silence."""
    sound = np.zeros(frames * HOP)
    sound[: len(samples)] = samples[: len(sound)]
    padded = np.pad(sound, WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[: frames * HOP : HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(windows * hann)) ** 2
    levels = np.log10(np.maximum(mel_filters(bins) @ power.T, 1e-10))
    return ((np.maximum(levels, levels.max() - 8) + 4) / 4).astype(np.float32)[None]
