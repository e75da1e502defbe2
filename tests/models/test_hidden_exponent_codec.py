"""The vendor's block format: the codec against a plain one written from docs/numerics.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tcim_lite.models.weights.hidden_exponent import codes_of, decode, encode

# Blocks of 64 finite halves. Drawn as bytes, because hypothesis takes as long for a number as for a block of bytes.
TIES = np.array([0, 8, 16, 24, 512, 1016, 1023], np.uint16)


def any_halves(drawn: bytes) -> list[int]:
    bits = np.frombuffer(drawn, np.uint16)
    return np.where(bits & 0x7C00 == 0x7C00, bits & 0xBFFF, bits).tolist()


def near_halves(drawn: bytes, top: int) -> list[int]:
    """Of one magnitude, where codes are large and ties occur."""
    bits, choice = np.frombuffer(drawn, np.uint16).reshape(2, 64)
    exponent = top - (choice & 0xFF) % 9
    mantissa = np.where(choice >> 15, TIES[(choice >> 8 & 0x7F) % len(TIES)], bits & 1023)
    return (bits & 0x8000 | exponent << 10 | mantissa).tolist()


BLOCKS = st.one_of(
    st.binary(min_size=128, max_size=128).map(any_halves),
    st.builds(near_halves, st.binary(min_size=256, max_size=256), st.integers(14, 30)),
)


def plain_block(halves: list[int]) -> list[int]:
    """64 bytes as integers -128..127, from the bits of 64 finite fp16 numbers; integers and fractions alone."""
    exponent = max(max(bits >> 10 & 31 for bits in halves), 1) - 21
    block = []
    for element, bits in enumerate(halves):
        biased, mantissa = bits >> 10 & 31, bits & 1023
        magnitude = Fraction((mantissa + 1024) << (biased - 1) if biased else mantissa, 1 << 24)
        value = -magnitude if bits >> 15 else magnitude
        place = element % 32 - 16
        if place >= 0 and place % 2 == 0:
            code = 2 * round(value / Fraction(2) ** (exponent + 1))  # round takes ties to even
            code = min(code, 126) + (exponent + 127 >> place // 2 & 1)
        else:
            code = min(round(value / Fraction(2) ** exponent), 127)
        assert -128 <= code <= 127
        block.append(code)
    return block


def plain_values(block: list[int]) -> list[Fraction]:
    """What 64 bytes stand for."""
    exponents = []
    for start in (16, 48):
        exponents.append(sum((block[start + 2 * bit] & 1) << bit for bit in range(8)) - 127)
    assert exponents[0] == exponents[1]
    hidden = {start + 2 * bit for start in (16, 48) for bit in range(8)}
    return [
        (code - (code & 1) if element in hidden else code) * Fraction(2) ** exponents[0]
        for element, code in enumerate(block)
    ]


def halves_of(values: list[float]) -> list[int]:
    return np.array(values, np.float16).view(np.uint16).tolist()


@pytest.mark.slow
@settings(max_examples=400)
@given(BLOCKS)
@example([0] * 64)
@example([0x8000] * 64)
@example([1] * 64)  # 2^-24, the smallest
@example([0x7BFF] * 64)
@example([0xFBFF] * 64)
@example(halves_of([i / 2 - 16 for i in range(64)]))
@example(halves_of([-127.5, 127.5] * 32))
@example(halves_of([63.5, -63.5, 64, 127] * 16))
def test_bytes_and_values_are_those_of_the_plain_codec(halves: list[int]) -> None:
    values = np.array(halves, np.uint16).view(np.float16)
    packed = encode(values)
    assert packed.dtype == np.int8
    assert packed.tolist() == plain_block(halves)
    decoded = decode(packed)
    assert [Fraction(float(value)) for value in decoded] == plain_values(packed.tolist())
    codes, exponents = codes_of(values)
    np.testing.assert_array_equal(codes * np.ldexp(1.0, exponents), decoded)
    # Half a step for most, a whole one where codes are even; at the upper end one more, 127 or 126 being the last.
    steps = np.where(np.isin(np.arange(64) % 32, range(16, 32, 2)), 2, 1) * np.ldexp(1.0, exponents)
    assert (np.abs(decoded - values) <= steps * np.where(decoded > 0, 1, 0.5)).all()


@given(BLOCKS)
def test_what_was_decoded_encodes_to_the_same_bytes(halves: list[int]) -> None:
    """But where -128 became the largest magnitude, which is the next power of two."""
    values = np.array(halves, np.uint16).view(np.float16)
    packed, codes = encode(values), codes_of(values)[0]
    if codes.min() > -128:
        np.testing.assert_array_equal(encode(decode(packed)), packed)


def test_corners_of_the_format() -> None:
    x = np.zeros(192, np.float32)
    x[:4] = (1.0, -0.5, 1 / 128, -1.999)  # step 2^-6: 0.5 and 127.9 steps
    x[16:20] = (1.0, 1 / 64, 3 / 64, 1 / 32)  # 64, 1, 3 and 2 steps
    x[64] = 6e-8  # a group of subnormals stays at 2^-20
    codes, exponents = codes_of(x)
    assert exponents.tolist() == [-6, -20, -20]
    assert codes[:4].tolist() == [64, -32, 0, -128]
    assert codes[16:20].tolist() == [64, 1, 4, 2]  # element 18 is even: 3 is a tie between 2 and 4
    assert not codes[64:].any()
    packed = encode(x)
    assert [byte & 1 for byte in packed[16:32:2]] == [(121 >> bit) & 1 for bit in range(8)]  # 121 = 127 - 6
    assert packed[64:].tolist() == [107 >> (i % 32 - 16) // 2 & 1 if i % 32 >= 16 and i % 2 == 0 else 0
                                    for i in range(128)]  # fmt: skip


def test_what_is_beyond_fp16_saturates_and_a_nan_is_refused() -> None:
    values = np.full(64, 1.0, np.float32)
    values[:3] = (np.inf, -np.inf, 1e30)
    np.testing.assert_array_equal(encode(values)[:3], [127, -128, 127])
    values[5] = np.nan
    with pytest.raises(ValueError, match=r"a NaN has no code.*replace it before"):
        encode(values)


def test_an_axis_is_padded_with_zeros() -> None:
    values = np.random.default_rng(1).standard_normal((3, 2, 70)).astype(np.float16)
    packed = encode(values)
    assert packed.shape == (3, 2, 128)
    whole = np.concatenate((values, np.zeros((3, 2, 58), np.float16)), axis=-1)
    np.testing.assert_array_equal(packed, encode(whole))
    assert not decode(packed)[..., 70:].any()
    with pytest.raises(ValueError, match="no multiple of 64"):
        codes_of(values)
    with pytest.raises(ValueError, match="no axis"):
        encode(np.float32(1))


def test_bytes_that_are_not_of_this_format_are_refused() -> None:
    packed = encode(np.ones(64, np.float16))
    packed[16] ^= 1
    with pytest.raises(ValueError, match="different exponents"):
        decode(packed)
    for wrong in (packed[:63], packed.view(np.uint8), np.int8(3)):
        with pytest.raises(ValueError, match="expected int8 with a multiple of 64"):
            decode(np.asarray(wrong))
