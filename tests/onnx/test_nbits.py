"""Ops of onnxruntime's domain whose weights are codes, as its quantisers write them, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(8)
X = RNG.normal(size=(2, 3, 80)).astype(np.float32)  # 80: the last block of a row is not full
OUTPUTS, BLOCKS, BLOCK = 5, 3, 32


def network(make_model, bits, zeros=None, bias=False, **attributes):
    constants = {
        "codes": RNG.integers(0, 256, (OUTPUTS, BLOCKS, BLOCK * bits // 8)).astype(np.uint8),
        "scales": RNG.uniform(0.01, 0.1, OUTPUTS * BLOCKS).astype(np.float32),
    }
    names = ["x", "codes", "scales"]
    if zeros is not None:
        constants["zeros"] = zeros
        names.append("zeros")
    if bias:
        constants["bias"] = RNG.normal(size=OUTPUTS).astype(np.float32)
        names += [""] * (5 - len(names)) + ["bias"]
    how = {"K": 80, "N": OUTPUTS, "bits": bits, "block_size": BLOCK, "domain": "com.microsoft", **attributes}
    model = make_model([("MatMulNBits", names, ["y"], how)], {"x": X.shape}, ["y"], constants)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


@pytest.mark.parametrize(("bits", "zeros"), [(4, "none"), (4, "packed"), (4, "floats"), (8, "none"), (8, "packed")])
def test_a_product_with_codes_is_one_of_what_they_stand_for(bits, zeros, make_model, run_here, run_there):
    packed = RNG.integers(0, 256, OUTPUTS * -(-BLOCKS * bits // 8)).astype(np.uint8)
    floats = RNG.uniform(0, 2**bits, OUTPUTS * BLOCKS).astype(np.float32)
    model = network(make_model, bits, {"none": None, "packed": packed, "floats": floats}[zeros], bias=zeros == "packed")
    want = run_there(model, {"x": X})["y"]
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"K": 96}, r"codes of 4 bits in blocks of 32, N = 5, K = 96, for an operand \[2, 3, 80\]"),
        ({"bits": 3}, "codes of 3 bits"),
        ({"block_size": 64}, "the scales: 15 of float32, expected 10 floats"),
        ({"N": 6}, "the codes: 240 of uint8, expected 288 of uint8"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(attributes, message, make_model):
    model = network(make_model, **{"bits": 4, **attributes})
    if "block_size" in attributes:
        model.graph.initializer[0].dims[:] = [240]
        model.graph.initializer[0].raw_data = bytes(5 * 2 * 32)
        model.graph.initializer[0].dims[:] = [5, 2, 32]
    with pytest.raises(TcimError, match=rf"'n0' \(com.microsoft.MatMulNBits\): {message}"):
        onnx_bytes(model, "float32")


ORT = {"domain": "com.microsoft"}
CODES = RNG.integers(-63, 64, (80, 8)).astype(np.int8)  # 7 bits: without VNNI onnxruntime's sums saturate
SCALES = RNG.uniform(0.01, 0.1, 8).astype(np.float32)


def of_codes(make_model, nodes, constants, feeds):
    model = make_model(nodes, {name: array.shape for name, array in feeds.items()}, ["y"], constants)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


def test_a_dynamically_quantised_product_does_not_round_its_input(make_model, run_here, run_there):
    bias = RNG.normal(size=8).astype(np.float32)
    constants = {"w": CODES, "s": SCALES, "z": np.full(8, 3, np.int8), "b": bias}
    model = of_codes(
        make_model, [("DynamicQuantizeMatMul", ["x", "w", "s", "z", "b"], ["y"], ORT)], constants, {"x": X}
    )
    got, there = run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"]
    exact = X @ ((CODES - np.float32(3)) * SCALES) + bias
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())
    assert np.abs(got - there).max() < 0.02 * np.abs(there).max()


def test_a_product_of_codes_gets_both_scales(make_model, run_here, run_there):
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["q", "sx", "zx"], {}),
        ("MatMulIntegerToFloat", ["q", "w", "sx", "s", "zx"], ["y"], ORT),
    ]
    model = of_codes(make_model, nodes, {"w": CODES, "s": SCALES}, {"x": X})
    want = run_there(model, {"x": X})["y"]
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_a_dynamically_quantised_lstm_is_one_of_floats(make_model, run_here, run_there):
    weights = {"w": (6, 12), "r": (3, 12)}
    constants = {name: RNG.integers(-63, 64, (2, *shape)).astype(np.int8) for name, shape in weights.items()}
    constants |= {"s": np.float32([0.008, 0.012]), "z": np.int8([0, 0])}
    names = ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"]
    how = {"hidden_size": 3, "direction": "bidirectional", **ORT}
    x = RNG.normal(size=(4, 2, 6)).astype(np.float32)
    model = of_codes(make_model, [("DynamicQuantizeLSTM", names, ["y"], how)], constants, {"x": x})
    want = run_there(model, {"x": x})["y"]
    assert np.abs(run_here(model, {"x": x})["y"] - want).max() < 0.02 * np.abs(want).max()


@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_table_of_codes_are_those_of_floats(zeros, make_model, run_here, run_there):
    constants = {
        "t": RNG.integers(0, 256, (9, 32)).astype(np.uint8),
        "s": RNG.uniform(0.01, 0.1, (9, 4)).astype(np.float32),
    }
    constants |= {"z": RNG.integers(0, 256, (9, 2)).astype(np.uint8)} if zeros else {}
    how = {"block_size": 16, "bits": 4, "quantize_axis": 1, "gather_axis": 0, **ORT}
    names = ["t", "i", "s", *(["z"] if zeros else [])]
    at = np.int32([[3, 0], [8, 3]])
    model = of_codes(make_model, [("GatherBlockQuantized", names, ["y"], how)], constants, {"i": at})
    model.graph.input[0].type.tensor_type.elem_type = 6
    np.testing.assert_allclose(run_here(model, {"i": at})["y"], run_there(model, {"i": at})["y"], rtol=1e-6)
