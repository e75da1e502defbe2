"""Options of the compiler that are given in Python, where nothing has read them from a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("checkpoint", "hf", "--checkpoint must be Path, got 'hf'"),
        ("output", None, "--output must be Path, got None"),
        ("name", 3, "--name must be str or None, got 3"),
        ("prefill_length", "8", "--prefill-length must be int, got '8'"),
        ("context_length", 16.0, "--context-length must be int or None, got 16.0"),
        ("batch", True, "--batch must be int, got True"),
        ("verify_length", 1.5, "--verify-length must be int or None, got 1.5"),
        ("audio_frames", "100", "--audio-frames must be int or None, got '100'"),
        ("seed", "x", "--seed must be int, got 'x'"),
        ("mtp", "no", "--mtp must be bool, got 'no'"),
        ("split_conv", 1, "--split-conv must be bool, got 1"),
        ("vision", True, "--vision must be str or None, got True"),
        ("vision_quant", 3, "--vision-quant must be str or None, got 3"),
    ],
)
def test_a_value_of_another_type_is_refused(option, value, message):
    with pytest.raises(CompileError) as error:
        CompileOptions(**{"checkpoint": Path("hf"), "output": Path("out"), option: value})
    assert str(error.value) == message
