"""WAV files of noise."""

import wave
from pathlib import Path

import numpy as np


def write_wav(path: Path, seconds: float, rate: int = 16000, channels: int = 2) -> np.ndarray:
    samples = np.random.default_rng(6).integers(-9000, 9000, (int(seconds * rate), channels)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return samples.mean(axis=1) / 2**15
