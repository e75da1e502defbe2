"""The vendor's block format with hidden exponents: docs/numerics.md section 3.

64 consecutive fp16 values share an exponent e in [-20, 9]; a value is about ``code * 2**e``, codes are int8. Elements
16, 18, .. 30 of each half have even codes, and in memory their lowest bits hold e + 127, bit 0 in element 16: both
halves the same. Nothing else is stored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUP = 64
LOWEST_EXPONENT, HIGHEST_EXPONENT = -20, 9
_HALF = 32
_PLACES = np.arange(16, 32, 2)  # in a half, of the exponent's bits 0 to 7
_BIAS = 127  # as fp32 has it
_FP16_MAX = np.float32(65504)


def codes_of(values: NDArray[np.floating]) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Rounds values as a Linear with these activations reads them.

    Args:
        values: [.., K], K a multiple of 64; rounded to fp16 first. What is beyond fp16, infinities included, counts as
            65504 with its sign.

    Returns:
        Codes [.., K] in -128..127 and exponents [.., K / 64].

    Raises:
        ValueError: A NaN, or K is no multiple of 64.
    """
    wide = np.asarray(values, np.float32)
    if wide.ndim == 0 or wide.shape[-1] % GROUP:
        raise ValueError(f"the last axis of {list(wide.shape)} is no multiple of {GROUP}; pad it with zeros")
    if np.isnan(wide).any():
        raise ValueError("a NaN has no code; the vendor's converter takes 0 for it, so replace it before")
    half = np.clip(wide, -_FP16_MAX, _FP16_MAX).astype(np.float16).astype(np.float32)
    groups = half.reshape(*half.shape[:-1], -1, GROUP)
    amax = np.abs(groups).max(axis=-1, initial=0)
    # frexp gives amax = m * 2^x with m in [0.5, 1): floor(log2 amax) = x - 1. Of 0 it gives x = 0.
    exponents = np.where(amax > 0, np.frexp(amax)[1] - 7, LOWEST_EXPONENT)
    exponents = np.clip(exponents, LOWEST_EXPONENT, HIGHEST_EXPONENT).astype(np.int32)
    steps = _steps()
    scaled = np.ldexp(groups, -exponents[..., None]) / steps
    codes = np.clip(np.rint(scaled) * steps, -128, 128 - steps)
    return codes.astype(np.int8).reshape(wide.shape), exponents


def encode(values: NDArray[np.floating]) -> NDArray[np.int8]:
    """Packs values as the vendor's converter does.

    Args:
        values: [.., K] as `codes_of` takes them, but of any K: the axis is padded with zeros to a multiple of 64.

    Returns:
        [.., K'] int8, codes with the exponents in their lowest bits.

    Raises:
        ValueError: A NaN, or no axis.
    """
    array = np.asarray(values)
    if array.ndim == 0:
        raise ValueError("a single value has no axis to pack; expected an array")
    missing = -array.shape[-1] % GROUP
    codes, exponents = codes_of(np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)]))
    bits = ((exponents[..., None] + _BIAS) >> np.arange(8)) & 1
    packed = codes.reshape(*exponents.shape, 2, _HALF)
    packed[..., _PLACES] |= bits[..., None, :].astype(np.int8)  # the codes are even there
    return packed.reshape(codes.shape)


def decode(packed: NDArray[np.int8]) -> NDArray[np.float32]:
    """The values [.., K] that packed bytes [.., K] stand for, exactly.

    Raises:
        ValueError: K is no multiple of 64, or the halves of a group differ in their exponent.
    """
    if packed.dtype != np.int8 or packed.ndim == 0 or packed.shape[-1] % GROUP:
        raise ValueError(f"got {packed.dtype} {list(packed.shape)}, expected int8 with a multiple of {GROUP} in a row")
    halves = packed.reshape(*packed.shape[:-1], -1, 2, _HALF)
    biased = ((halves[..., _PLACES].astype(np.int32) & 1) << np.arange(8)).sum(axis=-1)
    if (biased[..., 0] != biased[..., 1]).any():
        raise ValueError("the halves of a group hold different exponents: these are no bytes of this format")
    codes = halves.copy()
    codes[..., _PLACES] &= -2
    return np.ldexp(codes.astype(np.float32), biased[..., None] - _BIAS).reshape(packed.shape)


def _steps() -> NDArray[np.float32]:
    """[64]: 2 where codes are even, else 1."""
    steps = np.ones((2, _HALF), np.float32)
    steps[:, _PLACES] = 2
    return steps.reshape(GROUP)
