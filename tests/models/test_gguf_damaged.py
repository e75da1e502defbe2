"""GGUF files that are damaged or cut: one line says what, whatever the bytes are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf_families import SIZES, Type, make_gguf
from gguf_files import raw_gguf, text

from tcim_lite.models.checkpoints.gguf import GgufCheckpoint
from tcim_lite.models.common.errors import CheckpointError, CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

HUGE = (1 << 62).to_bytes(8, "little")
KEY = text("general.architecture")
U32 = (4).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GGUF", "it ends in the version, after 4 bytes"),
        (raw_gguf(version=4), "it has version 4, expected 2 or 3"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(16), "it is big-endian, expected little-endian"),
        (b"GGUF" + (3).to_bytes(4, "little") + HUGE + bytes(8), "it says it has 4611686018427387904 tensors"),
        (b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + HUGE, "it says it has 4611686018427387904 keys"),
        (raw_gguf([HUGE + bytes(20)]), "a key has 4611686018427387904 bytes, expected at most"),
        (raw_gguf([text(b"\xff") + U32 + bytes(8)]), "a key is no UTF-8"),
        (raw_gguf([KEY + (99).to_bytes(4, "little") + bytes(8)]), "has type 99, expected 0 to 12"),
        (
            raw_gguf([KEY + (9).to_bytes(4, "little") + U32 + HUGE]),
            "4611686018427387904 items of 'general.architecture'",
        ),
        (raw_gguf([KEY + (9).to_bytes(4, "little") + (9).to_bytes(4, "little") + bytes(8)]), "is an array of type 9"),
        (raw_gguf([KEY + U32 + bytes(4)] * 2), "it has the key 'general.architecture' twice"),
        (raw_gguf([], [text("a") + (9).to_bytes(4, "little") + bytes(84)]), "tensor 'a' has 9 axes, expected 1 to 4"),
        (
            raw_gguf([], [text("a") + (1).to_bytes(4, "little") + (64).to_bytes(8, "little") + bytes(12)]),
            "'a' takes bytes",
        ),
        (
            raw_gguf([], [text("a") + (1).to_bytes(4, "little") + HUGE + bytes(12)]),
            r"tensor 'a' takes bytes \d+ to \d+, but the file has \d+ \(truncated download\?\)",
        ),
        (
            raw_gguf([], [text("a") + (1).to_bytes(4, "little") + (31).to_bytes(8, "little") + U32[:1] + bytes(11)]),
            "type 4, which the package gguf does not know",
        ),
        (
            raw_gguf([], [text("a") + (1).to_bytes(4, "little") + (31).to_bytes(8, "little") + b"\2" + bytes(11)]),
            r"'a' of type Q4_0 has shape \[31\], expected rows of a multiple of 32",
        ),
        (
            raw_gguf([text("general.alignment") + U32 + (3).to_bytes(4, "little")]) + bytes(32),
            "general.alignment is 3, expected a power of two",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as raised:
        compile_checkpoint(CompileOptions(checkpoint=path, output=tmp_path / "out", **SIZES))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = make_gguf(tmp_path / "m.gguf", "qwen3").read_bytes()
    for length in [*range(4, 3000, 7), len(data) // 2, len(data) - 100]:
        (tmp_path / "m.gguf").write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=r"m\.gguf"):
            GgufCheckpoint(tmp_path / "m.gguf").config  # noqa: B018


def test_flipped_bytes_are_read_or_refused(tmp_path: Path) -> None:
    """Whatever a damaged header says, reading it ends soon, and with one kind of error."""
    path = make_gguf(tmp_path / "m.gguf", "llama", Type.Q4_0)
    data, rng, messages = path.read_bytes(), np.random.default_rng(8), []
    for _ in range(400):
        damaged = bytearray(data)
        for place in rng.integers(4, 2500, rng.integers(1, 4)):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            GgufCheckpoint(path).host_files()
        except CompileError as error:
            messages.append(str(error))
    assert 100 < len(messages) < 400
    assert not [message for message in messages if "\n" in message or len(message) > 1000]
