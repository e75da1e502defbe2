"""Models as onnxruntime's quantiser writes them: products of codes, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes, read
from tcim_lite.models.onnx.fuse import fuse

RNG = np.random.default_rng(9)
X = RNG.normal(size=(3, 600)).astype(np.float32)
# Of 7 bits: without VNNI onnxruntime's sums of two products saturate at 16 bits.
CODES = RNG.integers(-64, 64, (600, 20)).astype(np.int8)
FLOAT = {"to": 1}
SCALES = {"scale": np.float32(0.01), "columns": RNG.uniform(0.001, 0.02, 20).astype(np.float32)}


def _dynamic(scale: str, zero: list[str]) -> list:
    return [
        ("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {}), ("MatMulInteger", ["q", "w", "z", *zero], ["p"], {}),
        ("Mul", ["s", scale], ["both"], {}), ("Cast", ["p"], ["f"], FLOAT), ("Mul", ["f", "both"], ["r"], {}),
        ("Add", ["r", "bias"], ["y"], {}),
    ]  # fmt: skip


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
@pytest.mark.parametrize(("scale", "zero"), [("scale", []), ("columns", []), ("scale", ["zero"])])
def test_a_dynamically_quantised_product_is_one_of_floats(scale, zero, quant, make_model, run_here, run_there):
    constants = {"w": CODES, "bias": RNG.normal(size=20).astype(np.float32), scale: SCALES[scale]}
    constants |= dict.fromkeys(zero, np.int8(3))
    model = make_model(_dynamic(scale, zero), {"x": X.shape}, ["y"], constants)
    assert [node.op for node in fuse(read.read(model, None)).nodes] == ["MatMulBias"]
    there = run_there(model, {"x": X})["y"]
    here = run_here(model, {"x": X}, quant)["y"]
    assert np.abs(here - there).max() < (0.03 if quant == "w8a8h1_sefp" else 0.02) * np.abs(there).max()
    weight = (CODES.astype(np.float32) - (3 if zero else 0)) * SCALES[scale]
    exact = X @ weight + constants["bias"]
    bound = {"float32": 1e-5, "float16": 2e-3, "w8a8h1_sefp": 3e-2}[quant]
    np.testing.assert_allclose(here, exact, atol=bound * np.abs(exact).max())


def test_products_of_codes_are_exact_beyond_what_float32_holds(make_model, run_here):
    """600 products of 255 * 127 are more than 2^24."""
    nodes = [("QuantizeLinear", ["x", "one", "zero"], ["q"], {}), ("MatMulInteger", ["q", "w"], ["p"], {})]
    model = make_model([*nodes, ("Mod", ["p", "m"], ["r"], {}), ("Cast", ["r"], ["y"], FLOAT)], {"x": (2, 600)}, ["y"],
                       {"w": np.full((600, 20), 127, np.int8), "one": np.float32(1), "zero": np.uint8(0),
                        "m": np.int32(1000)})  # fmt: skip
    x = np.full((2, 600), 255, np.float32)
    x[1, 7] = 254
    exact = x.astype(np.int64) @ np.full((600, 20), 127) % 1000
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], exact)
    with pytest.raises(TcimError, match=r"'n1' \(MatMulInteger\): sums of products .* float16 .*--quant float32"):
        onnx_bytes(model, "float16")


def test_a_table_of_codes_becomes_one_of_floats(make_model, run_here, run_there):
    nodes = [("Gather", ["w", "at"], ["g"], {}), ("DequantizeLinear", ["g", "scale", "zero"], ["y"], {})]
    model = make_model(nodes, {"at": (4,)}, ["y"], {"w": CODES, "scale": np.float32(0.02), "zero": np.int8(-5)})
    model.graph.input[0].type.tensor_type.elem_type = 6
    assert [node.op for node in fuse(read.read(model, None)).nodes] == ["Gather"]
    at = np.array([0, 5, 599, 3], np.int32)
    np.testing.assert_array_equal(run_here(model, {"at": at})["y"], run_there(model, {"at": at})["y"])


@pytest.mark.parametrize("quant", ["float32", "float16"])
def test_qlinear_ops_differ_from_onnxruntime_by_a_code_at_most(quant, make_model, run_here, run_there):
    nodes = [
        ("QuantizeLinear", ["x", "xs", "xz"], ["q"], {}),
        ("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("MaxPool", ["c"], ["m"], {"kernel_shape": [2, 2], "strides": [2, 2]}), ("Flatten", ["m"], ["flat"], {}),
        ("QLinearMatMul", ["flat", "ys", "yz", "w2", "w2s", "w2z", "y2s", "yz"], ["p"], {}),
        ("DequantizeLinear", ["p", "y2s", "yz"], ["y"], {}),
    ]  # fmt: skip
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(128), "w": RNG.integers(-64, 64, (8, 3, 3, 3)).astype(np.int8),
        "ws": RNG.uniform(0.001, 0.01, 8).astype(np.float32), "wz": np.zeros(8, np.int8), "ys": np.float32(0.1),
        "yz": np.uint8(100), "b": RNG.integers(-500, 500, 8).astype(np.int32),
        "w2": RNG.integers(-64, 64, (128, 5)).astype(np.int8), "w2s": np.float32(0.004), "w2z": np.int8(-8),
        "y2s": np.float32(0.2),
    }  # fmt: skip
    model = make_model(nodes, {"x": (2, 3, 8, 8)}, ["y"], constants)
    x = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)
    steps = np.abs(run_here(model, {"x": x}, quant)["y"] - run_there(model, {"x": x})["y"]) / 0.2
    assert steps.max() < 1.01
    assert (steps > 0.5).mean() < 0.3
