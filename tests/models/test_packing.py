"""Packed layouts, against docs/hmm-format.md section 6 byte by byte and by round trip."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.hmm import packed_bytes
from tcim_lite.models.weights.packing import DTYPES, block_bytes, pack, unpack

E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]  # by nibble, doubled


def quantised(fmt: str, outputs: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(outputs * 1000 + inputs)
    if fmt == "linear_w4":
        codes = rng.integers(-8, 8, (outputs, inputs), dtype=np.int8)
        return codes, rng.uniform(0.001, 2, (outputs, inputs // 64)).astype(np.float16)
    if fmt == "linear_mxfp4":
        codes = np.array(E2M1, np.int8)[rng.integers(0, 16, (outputs, inputs))]
        return codes, rng.integers(-126, 127, (outputs, inputs // 32), dtype=np.int8)
    codes = rng.integers(-127, 128, (outputs, inputs), dtype=np.int8)
    return codes, rng.integers(-126, 127, (outputs, inputs // 64), dtype=np.int8)


@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("inputs", [64, 192])
@pytest.mark.parametrize("fmt", ["linear_w4", "linear_w8", "linear_mxfp4"])
def test_quantised_round_trip(fmt: str, outputs: int, inputs: int) -> None:
    codes, scales = quantised(fmt, outputs, inputs)
    packed = pack(fmt, codes, scales)
    assert packed.size == packed_bytes(fmt, (outputs, inputs), "uint8")
    for got, want in zip(unpack(packed.tobytes(), fmt, outputs, inputs), (codes, scales), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("outputs", [1, 16, 33])
@pytest.mark.parametrize("inputs", [1, 2, 7, 64])
@pytest.mark.parametrize("fmt", ["linear_f16", "linear_f32"])
def test_float_round_trip(fmt: str, outputs: int, inputs: int) -> None:
    weights = np.random.default_rng(0).standard_normal((outputs, inputs)).astype(DTYPES[fmt])
    packed = pack(fmt, weights)
    assert packed.size == packed_bytes(fmt, (outputs, inputs), DTYPES[fmt])
    got, scales = unpack(packed.tobytes(), fmt, outputs, inputs)
    assert scales is None
    np.testing.assert_array_equal(got, weights)


def test_w4_bytes_are_where_the_format_says() -> None:
    outputs, inputs = 20, 192
    codes, scales = quantised("linear_w4", outputs, inputs)
    blocks = pack("linear_w4", codes, scales)
    for n in range(32):
        block, lane = divmod(n, 16)
        for k in range(inputs):
            byte = blocks[block, k // 128 * 1088 + k % 128 // 8 * 64 + 4 * lane + k % 4]
            nibble = byte & 15 if k % 8 < 4 else byte >> 4
            assert nibble == (codes[n, k] + 8 if n < outputs else 8)
        for group in range(inputs // 64):
            at = group // 2 * 1088 + 1024 + group % 2 * 32 + lane * 2
            stored = blocks[block, at : at + 2].copy().view(np.float16)[0]
            assert stored == (scales[n, group] if n < outputs else 1)
    assert not blocks[:, 1088 + 512 : 1088 + 1024].any()
    assert not blocks[:, 2 * 1088 - 32 :].any()


def test_w8_bytes_are_where_the_format_says() -> None:
    outputs, inputs = 20, 128
    codes, exponents = quantised("linear_w8", outputs, inputs)
    blocks = pack("linear_w8", codes, exponents)
    for n in range(32):
        block, lane = divmod(n, 16)
        for k in range(inputs):
            want = int(codes[n, k]) + 128 if n < outputs else 128
            assert blocks[block, k // 4 * 64 + 4 * lane + k % 4] == want
        for group in range(inputs // 64):
            stored = blocks[block, inputs * 16 + group * 16 + lane].view(np.int8)
            assert stored == (exponents[n, group] if n < outputs else 0)
    assert not blocks[:, inputs * 16 + inputs // 64 * 16 :].any()


def test_mxfp4_bytes_are_where_the_format_says() -> None:
    outputs, inputs = 20, 192
    codes, exponents = quantised("linear_mxfp4", outputs, inputs)
    blocks = pack("linear_mxfp4", codes, exponents)
    for n in range(32):
        block, lane = divmod(n, 16)
        for k in range(inputs):
            byte = blocks[block, k // 128 * 1088 + k % 128 // 8 * 64 + 4 * lane + k % 4]
            nibble = byte & 15 if k % 8 < 4 else byte >> 4
            assert E2M1[nibble] == (codes[n, k] if n < outputs else 0)
        for group in range(inputs // 32):
            stored = blocks[block, group // 4 * 1088 + 1024 + group % 4 * 16 + lane].view(np.int8)
            assert stored == (exponents[n, group] if n < outputs else 0)
    assert not blocks[:, 1088 + 512 : 1088 + 1024].any()
    assert not blocks[:, 2 * 1088 - 32 :].any()


@pytest.mark.parametrize(
    ("fmt", "inputs", "want"),
    [("linear_w4", 64, 1088), ("linear_w8", 64, 1088), ("linear_mxfp4", 64, 1088), ("linear_f16", 3, 128)],
)
def test_blocks_are_padded_to_64_bytes(fmt: str, inputs: int, want: int) -> None:
    assert block_bytes(fmt, inputs) == want
