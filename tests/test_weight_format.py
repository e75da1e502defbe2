"""The table of packed layouts in Python against the one in C++, and packed weights read back through the core."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from graph_maker import linear_file

import tcim_lite.runtime as rt
from tcim_lite import _core
from tcim_lite.hmm.weight_format import (
    LAYOUTS,
    PACKED_CONV_OUTPUTS,
    PACKED_CONV_PIXELS,
    PACKED_CONV_TERMS,
    WeightLayout,
)
from tcim_lite.models.weights.packing import dequantize, is_quantized, pack
from tcim_lite.models.weights.quantize import QUANTIZERS, RANDOM_CODES

OUTPUTS = 40
QUANTIZED = [name for name in LAYOUTS if is_quantized(name)]


def places(layout: WeightLayout, inputs: int) -> list[tuple[int, int]]:
    """Where the codes and scales of each group begin, by counting through a block."""
    found, at = [], 0
    unit = layout.unit_inputs or inputs
    for first in range(0, inputs, unit):
        groups = range(first, min(first + unit, inputs), layout.scale_inputs)
        for index in range(len(groups)):
            codes, scales = (part(layout.scale_inputs) for part in (layout.line_bytes, layout.scale_bytes))
            found.append((at + index * codes, at + layout.line_bytes(unit) + index * scales))
        at += layout.line_bytes(unit) + layout.scale_bytes(unit)
    return found


def test_python_and_cpp_describe_the_same_formats() -> None:
    rows = _core.weight_layouts()
    assert rows[0]["name"] == "dense"
    assert [row["name"] for row in rows[1:]] == list(LAYOUTS)
    for code, row in enumerate(rows[1:], 1):
        fields = asdict(LAYOUTS[row["name"]])
        del fields["minor"], fields["error"]  # only Python needs them
        assert row | {"code": code} == fields | {"name": row["name"]}


def test_python_and_cpp_agree_which_convolutions_have_packed_weights() -> None:
    assert _core.packed_conv_least() == (PACKED_CONV_TERMS, PACKED_CONV_OUTPUTS, PACKED_CONV_PIXELS)


@pytest.mark.parametrize("inputs", [1, 2, 7, 64, 128, 192, 2880])
@pytest.mark.parametrize("fmt", LAYOUTS)
def test_python_and_cpp_agree_on_sizes_and_places(fmt: str, inputs: int) -> None:
    layout = LAYOUTS[fmt]
    if is_quantized(fmt) and inputs % 64:
        return
    block, found = _core.packed_block(layout.code, inputs)
    assert block == layout.block_bytes(inputs)
    assert found == (places(layout, inputs) if is_quantized(fmt) else [])


def read_back(fmt: str, packed: np.ndarray, inputs: int) -> np.ndarray:
    """The weights [N, K] that the core multiplies by: y of x = 1, one row per input, in fp32."""
    module = rt.load(linear_file((1, inputs, inputs), LAYOUTS[fmt].dtype, (OUTPUTS, inputs), fmt, w=packed))
    module.set_input("x", np.eye(inputs, dtype=np.float32)[None])
    module.run()
    return module.get_output("y").numpy()[0].T


@pytest.mark.parametrize("inputs", [64, 192])
@pytest.mark.parametrize("fmt", LAYOUTS)
def test_the_core_reads_what_the_packer_wrote(fmt: str, inputs: int) -> None:
    rng = np.random.default_rng(inputs)
    if is_quantized(fmt):
        codes, scales = RANDOM_CODES[fmt](rng, OUTPUTS, inputs)
        packed, wanted = pack(fmt, codes, scales), dequantize(codes, scales)
    else:
        wanted = rng.standard_normal((OUTPUTS, inputs)).astype(LAYOUTS[fmt].dtype)
        packed = pack(fmt, wanted)
    np.testing.assert_array_equal(read_back(fmt, packed, inputs), wanted)


@pytest.mark.parametrize("fmt", QUANTIZED)
def test_every_quantised_format_has_a_quantiser(fmt: str) -> None:
    weights = np.random.default_rng(0).standard_normal((OUTPUTS, 128)).astype(np.float32)
    codes, scales = QUANTIZERS[fmt](weights)
    np.testing.assert_array_equal(read_back(fmt, pack(fmt, codes, scales), 128), dequantize(codes, scales))
