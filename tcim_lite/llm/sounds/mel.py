"""Log-mel features of sounds, as speech models take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE = 16000
"""Samples a second, as models hear them."""
HOP = 160
"""Samples from one window of the features to the next."""
WINDOW = 400
_PLAIN_WINDOW, _PLAIN_LENGTH = 320, 512  # of Gemma 4: samples, and with the zeros behind them
_PLAIN_FLOOR = 1e-3


def mel_filters(bins: int) -> NDArray[np.float64]:
    """[bins, frequencies]: triangles of equal area to 8 kHz, on Slaney's scale: even to 1 kHz, then geometric."""
    step, log_step = 200 / 3, np.log(6.4) / 27
    highest = 15 + np.log(RATE / 2 / 1000) / log_step
    mels = np.linspace(0, highest, bins + 2)
    edges = np.where(mels < 15, mels * step, 1000 * np.exp(log_step * (mels - 15)))
    return _triangles(edges, WINDOW) * (2 / (edges[2:] - edges[:-2]))[:, None]


def _triangles(edges: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """[bins, frequencies] of height 1, from each edge to the second behind it, for windows of `length`."""
    frequencies = np.linspace(0, RATE / 2, length // 2 + 1)
    up = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    found: NDArray[np.float64] = np.maximum(np.minimum(up, down), 0)
    return found


def _spectra(padded: NDArray[Any], window: int, length: int) -> NDArray[np.float64]:
    """Magnitudes [windows, frequencies], of windows `HOP` samples apart."""
    windows = np.lib.stride_tricks.sliding_window_view(padded, window)[::HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    found: NDArray[np.float64] = np.abs(np.fft.rfft(windows * hann, length))
    return found


def log_mel(samples: NDArray[np.float32], bins: int, frames: int | None = None) -> NDArray[np.float32]:
    """[1, bins, frames], as WhisperFeatureExtractor makes them.

    Args:
        samples: `RATE` a second, in -1 .. 1.
        bins: How many frequencies.
        frames: How many windows, each `HOP` samples after the one before; the sound is cut or filled with silence. None
            for as many as it has, and no silence.
    """
    sound = samples.astype(np.float64)
    if frames is not None:
        sound = np.zeros(frames * HOP)
        sound[: len(samples)] = samples[: len(sound)]
    return _scaled(_levels(np.pad(sound, WINDOW // 2, mode="reflect"), bins, len(sound) // HOP))


def long_log_mel(samples: NDArray[np.float32], bins: int, block: int) -> NDArray[np.float32]:
    """As `log_mel`, of all windows of a long sound; `block` of them are computed at a time, which bounds the memory."""
    padded, frames = np.pad(samples, WINDOW // 2, mode="reflect"), len(samples) // HOP
    levels = np.empty((bins, frames))
    for begin in range(0, frames, block):
        end = min(begin + block, frames)
        piece = padded[begin * HOP : (end - 1) * HOP + WINDOW].astype(np.float64)
        levels[:, begin:end] = _levels(piece, bins, end - begin)
    return _scaled(levels)


def _levels(padded: NDArray[np.float64], bins: int, count: int) -> NDArray[np.float64]:
    """Logarithms of the power, [bins, count], of the first windows."""
    spectra = _spectra(padded, WINDOW, WINDOW)[:count]
    found: NDArray[np.float64] = np.log10(np.maximum(mel_filters(bins) @ (spectra**2).T, 1e-10))
    return found


def _scaled(levels: NDArray[np.float64]) -> NDArray[np.float32]:
    """[1, bins, windows]: what is 80 dB below the loudest is silence. Overwrites `levels`, which may be large."""
    np.maximum(levels, levels.max() - 8, out=levels)
    levels += 4
    levels /= 4
    found: NDArray[np.float32] = levels.astype(np.float32)[None]
    return found


def plain_log_mel(samples: NDArray[np.float32], bins: int, frames: int) -> NDArray[np.float32]:
    """[frames, bins], as the processor of Gemma 4 makes them of a sound with so many windows."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), bins + 2) / 2595) - 1)
    padded = np.pad(samples.astype(np.float64), (_PLAIN_WINDOW // 2, 0))
    levels = _spectra(padded, _PLAIN_WINDOW, _PLAIN_LENGTH)[:frames] @ _triangles(edges, _PLAIN_LENGTH).T
    found: NDArray[np.float32] = np.log(levels + _PLAIN_FLOOR).astype(np.float32)
    return found
