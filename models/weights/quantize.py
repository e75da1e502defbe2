"""The weight quantisers of docs/numerics.md section 10. Groups are 64 consecutive inputs of one output, or 32 (MXFP4).

All are functions of one group at a time, so callers may cut a matrix into row chunks and work on them in threads
(numpy releases the GIL in its loops).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.weight_format import E2M1_CODES, GROUP, LAYOUTS

MX_GROUP = LAYOUTS["linear_mxfp4"].scale_inputs
W4_CANDIDATES = 32
# Groups searched together. With 1024 the work arrays stay in L2 and one thread is 15 % faster, but two threads then
# spend their time on the interpreter lock: 29 M weights/s against 38 with 4096 (2 cores of an EPYC with AVX-512).
_SEARCH_GROUPS = 4096
_FP16_MAX = np.float32(65504.0)
_FP16_SMALLEST_NORMAL = np.float32(2.0**-14)
_DIVISORS = (5.5 + 0.125 * np.arange(W4_CANDIDATES)).astype(np.float32)


def quantize_w8(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Quantises to 8-bit codes with a power-of-two scale per (output, group).

    Args:
        weights: [N, K] fp32, finite, K a multiple of 64.

    Returns:
        Codes [N, K] int8 in -127..127 and exponents [N, K / 64] int8; a weight is about ``code * 2**exponent``.
    """
    outputs, inputs = weights.shape
    groups = weights.reshape(outputs, inputs // GROUP, GROUP)
    amax = np.maximum(groups.max(axis=2), -groups.min(axis=2))
    # frexp gives amax = m * 2^x with m in [0.5, 1): floor(log2 amax) = x - 1.
    exponents = np.clip(np.frexp(amax)[1] - 7, -126, 127)
    exponents[amax == 0] = -30
    scaled = groups * np.ldexp(np.float32(1), -exponents)[:, :, None]
    np.rint(scaled, out=scaled)
    np.clip(scaled, -127, 127, out=scaled)
    return scaled.astype(np.int8).reshape(outputs, inputs), exponents.astype(np.int8)


def quantize_w4(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Quantises to 4-bit codes with the fp16 scale, of 32 candidates, that has the least squared error.

    Args:
        weights: [N, K] fp32, finite, K a multiple of 64.

    Returns:
        Codes [N, K] int8 in -8..7 and scales [N, K / 64] fp16; a weight is about ``code * scale``.
    """
    outputs, inputs = weights.shape
    groups = weights.reshape(-1, GROUP)
    codes = np.empty(groups.shape, np.int8)
    scales = np.empty(len(groups), np.float16)
    for start in range(0, len(groups), _SEARCH_GROUPS):
        part = slice(start, start + _SEARCH_GROUPS)
        # [64, n]: lanes run across groups, so that sums over a group are taken in index order.
        columns = np.ascontiguousarray(groups[part].T)
        best = _best_scales(columns)
        scales[part] = best
        codes[part] = np.clip(np.rint(columns / best), -8, 7).astype(np.int8).T
    return codes.reshape(outputs, inputs), scales.reshape(outputs, inputs // GROUP)


def quantize_mxfp4(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Quantises to MXFP4: E2M1 values with a power-of-two scale per (output, 32 inputs).

    The scale is 2^(floor(log2 amax) - 2), so values are below 8; each is rounded to the nearest E2M1 number, ties to an
    even mantissa, and 6 is the largest. Codes are values doubled, exponents those of half the scale.

    Args:
        weights: [N, K] fp32, finite, K a multiple of 64.

    Returns:
        Codes [N, K] int8, 0, 1, 2, 3, 4, 6, 8, 12 or their negatives, and exponents [N, K / 32] int8; a weight is about
        ``code * 2**exponent``.
    """
    outputs, inputs = weights.shape
    groups = weights.reshape(outputs, inputs // MX_GROUP, MX_GROUP)
    amax = np.maximum(groups.max(axis=2), -groups.min(axis=2))
    exponents = np.clip(np.frexp(amax)[1] - 1 - 2 - 1, -126, 127)
    exponents[amax == 0] = 0
    doubled = np.ldexp(groups, -exponents[:, :, None])
    size = np.abs(doubled)
    step = np.where(size < 4, np.float32(1), np.where(size < 8, np.float32(2), np.float32(4)))
    codes = np.clip(np.rint(doubled / step) * step, -12, 12)
    return codes.astype(np.int8).reshape(outputs, inputs), exponents.astype(np.int8)


def w4_candidates(amax: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the candidate scales [32, n], exact fp16 values held in fp32, for largest magnitudes `amax` [n].

    ``fp16(amax / (5.5 + 0.125 j))`` with the division in fp32; raised to the smallest normal fp16 or lowered to the
    largest where it falls outside them. A group of zeros gets 1.
    """
    scales = amax / _DIVISORS[:, None]
    np.clip(scales, _FP16_SMALLEST_NORMAL, _FP16_MAX, out=scales)
    scales = scales.astype(np.float16).astype(np.float32)
    scales[:, amax == 0] = 1
    return scales


def _best_scales(columns: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns, per column of [64, n], the candidate with the least squared error; ties go to the first.

    A fast fp32 search leaves out candidates that provably cannot win; what remains (almost always one per group) is
    compared by the definition, in float64. With t = w/d and f(t) = t - clamp(rne(t), -8, 7), the error is d * |f(t)|.
    f is the signed distance to the nearest code, so |f| moves by no more than t does: an error of at most 2^-22 * |t|
    per element (reciprocal, product, and the definition's own rounded quotient) moves the norm over 64 elements by at
    most 8 * 2^-22 * max|t|. The fp32 sum of 64 squares adds a relative error below 2^-17.
    """
    amax = np.maximum(columns.max(axis=0), -columns.min(axis=0))
    scales = w4_candidates(amax)
    norms = np.empty_like(scales)
    ratio = np.empty_like(columns)
    code = np.empty_like(columns)
    with np.errstate(over="ignore", invalid="ignore"):
        for j, scale in enumerate(scales):
            inverse = np.float32(1) / scale
            largest = float((amax * inverse).max())
            np.multiply(columns, inverse, out=ratio)
            np.rint(ratio, out=code)
            # Up to here the clamp changes no magnitude of f: the most common half of the candidates skips it.
            if largest > 7.5:
                np.minimum(code, np.float32(7), out=code)
            if largest > 8.5:
                np.maximum(code, np.float32(-8), out=code)
            np.subtract(ratio, code, out=ratio)
            np.einsum("kn,kn->n", ratio, ratio, out=norms[j])
        np.sqrt(norms, out=norms)
        norms *= scales
        # 8 * 2^-22 * max|t| * d, and |t| * d = amax up to a rounding; the last term covers underflow of the squares.
        slack = amax * np.float32(2.0**-18) + norms * np.float32(2.0**-16) + scales * np.float32(2.0**-60)
        alive = norms - slack <= (norms + slack).min(axis=0)
    alive |= ~np.isfinite(norms).all(axis=0)
    contested = np.flatnonzero(alive.sum(axis=0) > 1)
    choice = alive.argmax(axis=0)
    if len(contested):
        choice[contested] = _exact_choice(columns[:, contested], scales[:, contested], alive[:, contested])
    return np.take_along_axis(scales, choice[None], axis=0)[0]


def _exact_choice(
    columns: NDArray[np.float32], scales: NDArray[np.float32], alive: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Returns the index of the best candidate among those `alive` [32, n] by the definition."""
    candidate, column = np.nonzero(alive)
    weights, scale = columns[:, column], scales[candidate, column]
    codes = np.clip(np.rint(weights / scale), -8, 7)
    # code * scale is exact in fp32: 4 by 11 significant bits.
    errors = weights.astype(np.float64) - codes * scale
    total = np.zeros(len(candidate))
    for row in errors:  # index order; np.sum would go pairwise
        total += row * row
    table = np.full(alive.shape, np.inf)
    table[candidate, column] = total
    return table.argmin(axis=0)


def _random_w4(rng: np.random.Generator, outputs: int, inputs: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    # Uniform codes -7..7 have deviation 4.32.
    scales = (rng.uniform(0.8, 1.2, (outputs, inputs // GROUP)) * (0.02 / 4.32)).astype(np.float16)
    return rng.integers(-7, 8, (outputs, inputs), dtype=np.int8), scales


def _random_w8(rng: np.random.Generator, outputs: int, inputs: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    # Odd codes -63..63 at 2^-11 have deviation 0.018; a range of 2^n draws three times as fast as -71..71.
    codes = rng.integers(-64, 64, (outputs, inputs), dtype=np.int8) | 1
    return codes, np.full((outputs, inputs // GROUP), -11, np.int8)


def _random_mxfp4(rng: np.random.Generator, outputs: int, inputs: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    # Uniform nibbles have deviation 5.85 as codes.
    codes = E2M1_CODES[rng.integers(0, 16, (outputs, inputs), dtype=np.int8)]
    return codes, rng.integers(-9, -7, (outputs, inputs // MX_GROUP), dtype=np.int8)


# By format: weights [N, K] to codes and scales.
QUANTIZERS: dict[str, Callable[[NDArray[np.float32]], tuple[NDArray[np.int8], NDArray[np.generic]]]] = {
    "linear_w4": quantize_w4,
    "linear_w8": quantize_w8,
    "linear_mxfp4": quantize_mxfp4,
}

# By format: random codes and scales of N by K weights of mean 0 and deviation near 0.02.
RANDOM_CODES: dict[str, Callable[[np.random.Generator, int, int], tuple[NDArray[np.int8], NDArray[np.generic]]]] = {
    "linear_w4": _random_w4,
    "linear_w8": _random_w8,
    "linear_mxfp4": _random_mxfp4,
}
