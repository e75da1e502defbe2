"""Cutting a packed weight gives what packing the rows alone gives."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.models.weights.packed_rows import packed_rows
from tcim_lite.models.weights.packing import pack as pack_weight
from tcim_lite.models.weights.quantize import RANDOM_CODES

INPUTS, OUTPUTS = 128, 83
CUTS = [
    [range(0, 48)],
    [range(48, 83)],
    [range(16, 32), range(64, 83)],
    [range(0, 83)],
    [range(0, 24), range(40, 48), range(70, 83)],
    [range(64, 83), range(0, 16)],
    [range(5, 6)],
]


def pack(fmt: str, rows: np.ndarray) -> np.ndarray:
    """Packs the given rows of one weight."""
    rng = np.random.default_rng(3)
    if fmt == "linear_w4":
        codes = rng.integers(-8, 8, (OUTPUTS, INPUTS), dtype=np.int8)
        return pack_weight(fmt, codes[rows], rng.uniform(0.5, 2, (OUTPUTS, INPUTS // 64)).astype(np.float16)[rows])
    if fmt == "linear_mxfp4":
        codes, exponents = RANDOM_CODES[fmt](rng, OUTPUTS, INPUTS)
        return pack_weight(fmt, codes[rows], exponents[rows])
    if fmt == "linear_w8":
        codes = rng.integers(-127, 128, (OUTPUTS, INPUTS), dtype=np.int8)
        return pack_weight(fmt, codes[rows], rng.integers(-30, 9, (OUTPUTS, INPUTS // 64), dtype=np.int8)[rows])
    values = rng.standard_normal((OUTPUTS, INPUTS)).astype("float16" if fmt == "linear_f16" else "float32")
    return pack_weight(fmt, values[rows])


@pytest.mark.parametrize("rows", CUTS, ids=str)
@pytest.mark.parametrize("fmt", ["linear_w4", "linear_w8", "linear_mxfp4", "linear_f16", "linear_f32"])
def test_rows_of_a_packed_weight(fmt: str, rows: list[range]) -> None:
    whole = pack(fmt, np.arange(OUTPUTS)).reshape(-1)
    got = np.concatenate(list(packed_rows(whole, fmt, (OUTPUTS, INPUTS), rows)))
    np.testing.assert_array_equal(got, pack(fmt, np.concatenate([np.array(part) for part in rows])))


def test_whole_blocks_are_not_copied() -> None:
    whole = pack("linear_w4", np.arange(OUTPUTS)).reshape(-1)
    parts = list(packed_rows(whole, "linear_w4", (OUTPUTS, INPUTS), [range(16, 48), range(64, 83)]))
    assert [len(part) for part in parts] == [2, 2]
    assert all(np.shares_memory(part, whole) for part in parts)
