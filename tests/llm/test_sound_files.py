"""From the bytes of WAV files to samples: every form of numbers, other rates, and what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tcim_lite.llm.sounds import SoundError, read_wav, resampled

VALUES = np.array([0.0, 0.5, -0.5, 0.25, -1.0, 0.75], np.float64)


def riff(data: bytes, kind: int = 1, bits: int = 16, channels: int = 1, rate: int = 16000, more: bytes = b"") -> bytes:
    width = bits // 8 * channels
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * width, width, bits) + more
    chunks = b"".join(
        name + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)
        for name, body in ((b"LIST", b"odd"), (b"fmt ", form), (b"data", data))
    )
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def integers(bits: int) -> bytes:
    whole = [int(value * 2 ** (bits - 1)) for value in VALUES]
    if bits == 8:
        return bytes(value + 128 for value in whole)
    return b"".join(value.to_bytes(bits // 8, "little", signed=True) for value in whole)


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_integers_of_every_width(bits):
    assert np.array_equal(read_wav(riff(integers(bits), bits=bits)), VALUES.astype(np.float32))


@pytest.mark.parametrize("bits", [32, 64])
def test_floats_and_the_longer_header(bits, tmp_path):
    data = VALUES.astype(f"<f{bits // 8}").tobytes()
    assert np.array_equal(read_wav(riff(data, kind=3, bits=bits)), VALUES.astype(np.float32))
    longer = struct.pack("<HHIH", 22, bits, 0, 3) + bytes(14)
    path = tmp_path / "long.wav"
    path.write_bytes(riff(data, kind=0xFFFE, bits=bits, more=longer))
    assert np.array_equal(read_wav(path), VALUES.astype(np.float32))


def test_channels_become_their_mean_and_a_cut_file_gives_whole_samples():
    file = riff(integers(16), channels=2)
    assert np.array_equal(read_wav(file), VALUES.reshape(-1, 2).mean(axis=1).astype(np.float32))
    assert len(read_wav(file[:-3])) == 2


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_samples_of_a_file_from_a_pipe_go_to_its_end(size):
    file = riff(integers(16), bits=16)
    place = file.index(b"data") + 4
    file = file[:place] + size.to_bytes(4, "little") + file[place + 4 :]
    assert np.array_equal(read_wav(file), VALUES.astype(np.float32))


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000])
def test_a_tone_stays_a_tone_at_any_rate(rate):
    """Compared with the same tone at 16 kHz, away from the ends, where half of the filter sees silence."""
    found = resampled(np.sin(2 * np.pi * 1000 * np.arange(rate) / rate).astype(np.float32), rate)
    assert len(found) == 16000
    want = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)
    assert np.abs(found - want)[200:-200].max() < 2e-3


@pytest.mark.parametrize("rate", [44100, 48000])
def test_what_16_khz_cannot_hold_is_left_out(rate):
    high = np.sin(2 * np.pi * 9500 * np.arange(rate) / rate).astype(np.float32)
    assert np.abs(resampled(high, rate))[200:-200].max() < 1e-2


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"", "0 bytes, nothing and so on, are no WAV file"),
        (b"ID3\x04" + bytes(40), r"49 44 33 04 .* no WAV file; convert the sound, for example with `ffmpeg"),
        (riff(integers(16))[:30], "is cut short"),
        (riff(b"")[:-8], "is cut short"),
        (riff(bytes(64), kind=2, bits=4), "4 bits in format 2 of WAV; expected integers of 8, 16, 24 or 32"),
        (riff(bytes(64), bits=12), "samples of 12 bits in format 1"),
        (riff(bytes(64), channels=0), "0 channels of 16000 samples a second"),
        (riff(bytes(64), rate=0), "1 channels of 0 samples a second; expected one channel at least, and 1000 to"),
        (riff(bytes(1801 * 1000), bits=8, rate=1000), "a sound of 1801 s; expected at most 1800"),
        (riff(np.array([np.nan], "<f4").tobytes(), kind=3, bits=32), "a sample is no finite number"),
    ],
)
def test_what_is_no_sound_is_refused(file, message):
    with pytest.raises(SoundError, match=message):
        read_wav(file)
