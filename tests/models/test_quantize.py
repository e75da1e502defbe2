"""The quantisers against straight-line ones, written from docs/numerics.md section 10."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tcim_lite.models.weights.packing import dequantize
from tcim_lite.models.weights.quantize import quantize_mxfp4, quantize_w4, quantize_w8, w4_candidates


def slow_w8(group: np.ndarray) -> tuple[list[int], int]:
    amax = max(abs(float(w)) for w in group)
    if amax == 0:
        return [0] * 64, -30
    exponent = min(max(math.frexp(amax)[1] - 1 - 6, -126), 127)
    # Python's round is to nearest, ties to even.
    return [min(max(round(math.ldexp(float(w), -exponent)), -127), 127) for w in group], exponent


def slow_w4(group: np.ndarray) -> tuple[list[int], float]:
    amax = np.float32(max(abs(float(w)) for w in group))
    if amax == 0:
        return [0] * 64, 1.0
    best = (math.inf, [0] * 64, 1.0)
    for j in range(32):
        wanted = amax / np.float32(5.5 + 0.125 * j)
        scale = np.float32(np.float16(min(max(wanted, np.float32(2**-14)), np.float32(65504))))
        codes = [min(max(round(float(w / scale)), -8), 7) for w in group]
        error = 0.0
        for w, code in zip(group, codes, strict=True):
            difference = float(w) - code * float(scale)
            error += difference * difference
        if error < best[0]:
            best = (error, codes, float(scale))
    return best[1], best[2]


def cases() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    normal = rng.standard_normal((6, 128)).astype(np.float32)
    with_zero_group = normal.copy()
    with_zero_group[2, 64:] = 0
    return {
        "checkpoint": normal * np.float32(0.02),
        "zero group": with_zero_group,
        "ties": np.round(normal * 4) / np.float32(4),
        "already on a grid": rng.integers(-7, 8, (6, 128)).astype(np.float32) * np.float32(0.25),
        "outlier": np.where(rng.random((6, 128)) < 0.01, np.float32(30), normal),
        "below normal fp16": normal * np.float32(1e-5),
        "fp32 subnormal": normal * np.float32(1e-39),
        "scale near the fp16 maximum": normal * np.float32(1.5e5),
        "huge": normal * np.float32(1e36),
        "powers of two": np.exp2(rng.integers(-20, 5, (6, 128))).astype(np.float32),
    }


@pytest.mark.parametrize("case", cases())
def test_w4_equals_the_definition(case: str) -> None:
    weights = cases()[case]
    codes, scales = quantize_w4(weights)
    for row, group in np.ndindex(scales.shape):
        part = slice(64 * group, 64 * group + 64)
        want_codes, want_scale = slow_w4(weights[row, part])
        assert float(scales[row, group]) == want_scale
        assert codes[row, part].tolist() == want_codes


@pytest.mark.parametrize("case", cases())
def test_w8_equals_the_definition(case: str) -> None:
    weights = cases()[case]
    codes, exponents = quantize_w8(weights)
    for row, group in np.ndindex(exponents.shape):
        part = slice(64 * group, 64 * group + 64)
        assert (codes[row, part].tolist(), int(exponents[row, group])) == slow_w8(weights[row, part])


def test_w4_does_not_depend_on_how_rows_are_cut() -> None:
    weights = np.random.default_rng(0).standard_normal((2100, 128)).astype(np.float32)  # beyond one search
    codes, scales = quantize_w4(weights)
    for row in (0, 2047, 2048, 2099):
        alone = quantize_w4(weights[row : row + 1])
        np.testing.assert_array_equal(codes[row], alone[0][0])
        np.testing.assert_array_equal(scales[row], alone[1][0])


def test_w4_candidates_are_normal_fp16() -> None:
    amax = np.array([0, 1e-45, 1e-6, 1, 3e5, 5e5, 3e38], np.float32)
    candidates = w4_candidates(amax)
    np.testing.assert_array_equal(candidates, candidates.astype(np.float16))
    assert candidates.min() >= 2.0**-14
    assert candidates.max() <= 65504
    assert (candidates[:, 0] == 1).all()


def test_quantised_weights_are_close() -> None:
    weights = np.random.default_rng(0).standard_normal((16, 256)).astype(np.float32)
    for quantize, limit in ((quantize_w4, 0.1), (quantize_mxfp4, 0.15), (quantize_w8, 0.01)):
        error = dequantize(*quantize(weights)) - weights
        assert np.sqrt((error**2).mean()) < limit


def test_mxfp4_takes_the_nearest_value_and_ties_to_even() -> None:
    # floor(log2 7) - 2 = 0: the scale is 1, and 7 is beyond the largest value.
    values = [7, 6, 5.1, 5, 4.9, 3.5, 3.4, 2.5, 2.6, 1.75, 1.25, 1.26, 0.75, 0.25, 0.26, 0, -7, -5, -3.5, -0.25, -0.8]
    wanted = [6, 6, 6, 4, 4, 4, 3, 2, 3, 2, 1, 1.5, 1, 0, 0.5, 0, -6, -4, -4, 0, -1]
    weights = np.zeros((1, 64), np.float32)
    weights[0, : len(values)] = values
    codes, exponents = quantize_mxfp4(weights)
    np.testing.assert_array_equal(dequantize(codes, exponents)[0, : len(values)], wanted)
    assert exponents.tolist() == [[-1, 0]]


def test_mxfp4_values_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    codes = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.int8)[rng.integers(0, 8, (16, 128))] * rng.choice([-1, 1], (16, 128))
    codes[:, ::32] = 12  # so that the scale is found again
    weights = dequantize(codes, rng.integers(-100, 100, (16, 4), dtype=np.int8))
    np.testing.assert_array_equal(dequantize(*quantize_mxfp4(weights)), weights)
