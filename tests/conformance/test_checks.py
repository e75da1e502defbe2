"""What the suite's cases check with."""

import numpy as np
import pytest

from tcim_lite.conformance.checks import same_rows

ROWS = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float16)
NEXT = np.nextafter(ROWS, np.float16(9))


def test_rows_of_the_emulator_on_a_cpu_have_to_be_equal_to_the_bit(monkeypatch):
    monkeypatch.delenv("TCIM_LITE_DEVICE", raising=False)
    same_rows(ROWS, ROWS)
    with pytest.raises(AssertionError, match="not equal"):
        same_rows(NEXT, ROWS)


def test_rows_of_a_gpu_may_differ_by_rounding(monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE", "cuda")
    same_rows(NEXT, ROWS)
    same_rows(np.zeros((2, 8)), np.zeros((2, 8)))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(ROWS[[0, 1, 3, 2]], id="rows exchanged"),
        pytest.param(ROWS[:3], id="a row missing"),
        pytest.param(np.where(np.arange(64) == 5, np.nan, ROWS), id="a NaN"),
        pytest.param(ROWS * np.float16(1.05), id="five percent too large"),
        pytest.param(np.roll(ROWS, 1), id="rolled"),
    ],
)
def test_rows_of_a_gpu_may_differ_by_nothing_else(monkeypatch, wrong):
    monkeypatch.setenv("TCIM_LITE_DEVICE", "cuda")
    with pytest.raises(AssertionError):
        same_rows(wrong, ROWS)
