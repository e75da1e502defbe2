"""Log-mel features of sounds, as speech models take them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE = 16000
"""Samples a second, as models hear them."""
HOP = 160
"""Samples from one window of the features to the next."""
WINDOW = 400


def mel_filters(bins: int) -> NDArray[np.float64]:
    """[bins, frequencies]: triangles of equal area to 8 kHz, on Slaney's scale: even to 1 kHz, then geometric."""
    step, log_step = 200 / 3, np.log(6.4) / 27
    highest = 15 + np.log(RATE / 2 / 1000) / log_step
    mels = np.linspace(0, highest, bins + 2)
    edges = np.where(mels < 15, mels * step, 1000 * np.exp(log_step * (mels - 15)))
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    up = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    found: NDArray[np.float64] = np.maximum(np.minimum(up, down), 0) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return found


def log_mel(samples: NDArray[np.float32], bins: int, frames: int) -> NDArray[np.float32]:
    """[1, bins, frames], as WhisperFeatureExtractor makes them; the sound is cut or filled with silence.

    Args:
        samples: `RATE` a second, in -1 .. 1.
        bins: How many frequencies.
        frames: How many windows, each `HOP` samples after the one before.
    """
    sound = np.zeros(frames * HOP)
    sound[: len(samples)] = samples[: len(sound)]
    padded = np.pad(sound, WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[: frames * HOP : HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(windows * hann)) ** 2
    levels = np.log10(np.maximum(mel_filters(bins) @ power.T, 1e-10))
    found: NDArray[np.float32] = ((np.maximum(levels, levels.max() - 8) + 4) / 4).astype(np.float32)[None]
    return found
