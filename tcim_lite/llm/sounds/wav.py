"""From the bytes of a WAV file to samples at the rate that models hear."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..media import MediaError
from .mel import RATE

_MOST_SECONDS = 1800  # a small file of few samples a second may be a long sound
_RATES = (1000, 384000)
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_CROSSINGS = 16  # of zero, on each side of a filter
_BLOCK = 4096  # outputs at a time
_CUT = 0.95  # where it ends, of the highest frequency that both rates hold


class SoundError(MediaError):
    """A sound that cannot be used; the message says why, in one line."""


def read_wav(source: Path | bytes) -> NDArray[np.float32]:
    """The samples of a WAV file, 16000 a second, in -1 .. 1; several channels become their mean.

    Args:
        source: A file, or its bytes: integers of 8, 16, 24 or 32 bits, or floats of 32 or 64.

    Raises:
        OSError: The file cannot be read.
        SoundError: It is no such file.
    """
    name = f"{source}: " if isinstance(source, Path) else ""
    data = source.read_bytes() if isinstance(source, Path) else source
    form, samples = b"", None
    for chunk, body in _chunks(data, name):
        if chunk == b"fmt " and not form:
            form = body
        elif chunk == b"data" and form:
            samples = body
            break
    if samples is None or len(form) < 16:
        raise SoundError(f"{name}the WAV file is cut short: it has no samples, or does not say what they are")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", form[:16])
    if kind == _EXTENSIBLE and len(form) >= 26:
        (kind,) = struct.unpack("<H", form[24:26])
    if not channels or not _RATES[0] <= rate <= _RATES[1]:
        raise SoundError(
            f"{name}{channels} channels of {rate} samples a second; expected one channel at least, and {_RATES[0]} to "
            f"{_RATES[1]} samples"
        )
    values = _numbers(samples, kind, bits, channels, name)
    if (seconds := len(values) / rate) > _MOST_SECONDS:
        raise SoundError(f"{name}a sound of {seconds:.0f} s; expected at most {_MOST_SECONDS}: cut it into parts")
    return resampled(values.mean(axis=1, dtype=np.float32), rate)


def _chunks(data: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """What a RIFF file has; a chunk that is cut short ends where the file ends.

    So does one of samples that is said to have none: who writes to a pipe cannot come back to say how many.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        begin = data[:8].hex(" ") or "nothing"
        raise SoundError(
            f"{name}{len(data)} bytes, {begin} and so on, are no WAV file; convert the sound, for example with "
            f"`ffmpeg -i SOUND -ac 1 -ar {RATE} OUT.wav`"
        )
    place = 12
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        if data[place : place + 4] == b"data" and size == 0:
            size = len(data)
        yield data[place : place + 4], data[place + 8 : place + 8 + size]
        place += 8 + size + size % 2


def _numbers(data: bytes, kind: int, bits: int, channels: int, name: str) -> NDArray[np.float32]:
    """[samples, channels], in -1 .. 1; what follows the last whole sample is dropped."""
    width = bits // 8
    known = (kind == _PCM and bits in (8, 16, 24, 32)) or (kind == _FLOAT and bits in (32, 64))
    if not known:
        raise SoundError(
            f"{name}samples of {bits} bits in format {kind} of WAV; expected integers of 8, 16, 24 or 32 bits (format "
            f"{_PCM}) or floats of 32 or 64 (format {_FLOAT})"
        )
    data = data[: len(data) // (width * channels) * (width * channels)]
    if kind == _FLOAT:
        values = np.frombuffer(data, f"<f{width}").astype(np.float32)
        if not np.isfinite(values).all():
            raise SoundError(f"{name}a sample is no finite number")
    elif width == 1:  # the only ones without a sign
        values = (np.frombuffer(data, np.uint8).astype(np.float32) - np.float32(128)) / np.float32(128)
    elif width == 3:  # as the upper bytes of 32 bits
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    else:
        values = np.frombuffer(data, f"<i{width}").astype(np.float32) / np.float32(2 ** (bits - 1))
    return values.reshape(-1, channels)


def resampled(samples: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Samples of `rate` a second, as `RATE` a second.

    A sinc in a Hann window, which leaves out what is above half of the lower rate. Of L outputs for M inputs, each has
    its own values of the filter.
    """
    if rate == RATE or not len(samples):
        return samples
    up, down = (number // math.gcd(rate, RATE) for number in (RATE, rate))
    cut = _CUT * min(1.0, up / down)  # of half the rate of the inputs
    reach = math.ceil(_CROSSINGS / cut)
    count = -(-len(samples) * up // down)
    padded = np.pad(samples, (reach, reach + 1)).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    found = np.empty(count, np.float32)
    for phase in range(min(up, count)):
        first, behind = divmod(phase * down, up)
        distance = np.arange(-reach, reach + 1) - behind / up
        taper = np.where(np.abs(distance) <= reach, 0.5 + 0.5 * np.cos(np.pi * distance / reach), 0)
        taps = cut * np.sinc(cut * distance) * taper
        own, taps = found[phase::up], taps / taps.sum()
        for begin in range(0, len(own), _BLOCK):  # a product copies its windows
            end = min(begin + _BLOCK, len(own))
            own[begin:end] = windows[first + begin * down : first + end * down : down][: end - begin] @ taps
    return found
