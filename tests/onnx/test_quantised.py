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


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
def test_a_product_of_two_computed_matrices_that_are_both_quantised(quant, make_model, run_here, run_there):
    """As onnxruntime's dynamic quantiser writes attention where it is told to quantise products of two inputs."""
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {}), ("DynamicQuantizeLinear", ["k"], ["c", "t", "n"], {}),
        ("MatMulInteger", ["q", "c", "z", "n"], ["p"], {}), ("Cast", ["p"], ["f"], FLOAT),
        ("Mul", ["t", "s"], ["both"], {}), ("Mul", ["f", "both"], ["y"], {}),
    ]  # fmt: skip
    feeds = {"x": RNG.normal(size=(2, 5, 16)).astype(np.float32), "k": RNG.normal(size=(2, 16, 7)).astype(np.float32)}
    model = make_model(nodes, {name: array.shape for name, array in feeds.items()}, ["y"])
    here, there = run_here(model, feeds, quant)["y"], run_there(model, feeds)["y"]
    wanted, bound = (there, 1e-5) if quant == "float32" else (feeds["x"] @ feeds["k"], 2e-3)  # float32 holds the codes
    np.testing.assert_allclose(here, wanted, atol=bound * np.abs(wanted).max())
    assert np.abs(here - there).max() < 0.03 * np.abs(there).max()


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
def test_a_bias_in_whole_steps_is_one_of_floats(quant, make_model, run_here, run_there):
    """As onnxruntime's quantiser of 2020 wrote a Conv: the bias becomes integers of the scale of the products."""
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {}),
        ("Mul", ["s", "scale"], ["steps"], {}), ("Div", ["bias", "steps"], ["d"], {}), ("Floor", ["d"], ["r"], {}),
        ("Cast", ["r"], ["i"], {"to": 6}), ("Reshape", ["i", "column"], ["b"], {}),
        ("ConvInteger", ["q", "w", "z", "zero"], ["p"], {}), ("Add", ["p", "b"], ["a"], {}),
        ("Cast", ["a"], ["f"], FLOAT), ("Mul", ["s", "scale"], ["both"], {}), ("Mul", ["f", "both"], ["y"], {}),
    ]  # fmt: skip
    weight = RNG.integers(0, 128, (6, 8, 3, 3)).astype(np.uint8)
    constants = {
        "w": weight, "scale": np.float32(0.02), "zero": np.uint8(60), "bias": RNG.normal(size=6).astype(np.float32),
        "column": np.array([1, 6, 1, 1]),
    }  # fmt: skip
    x = RNG.normal(size=(1, 8, 7, 7)).astype(np.float32)
    model = make_model(nodes, {"x": x.shape}, ["y"], constants)
    assert [node.op for node in fuse(read.read(model, None)).nodes] == ["Conv"]
    there, here = run_there(model, {"x": x})["y"], run_here(model, {"x": x}, quant)["y"]
    assert np.abs(here - there).max() < (0.03 if quant == "w8a8h1_sefp" else 0.02) * np.abs(there).max()


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
def test_a_product_of_rows_of_codes_is_one_of_floats(quant, make_model, run_here, run_there):
    """As onnxruntime's quantiser makes of an embedding in front of attention: both scales are constants."""
    nodes = [
        ("Gather", ["table", "at"], ["rows"], {}), ("MatMulInteger", ["rows", "w", "zero"], ["p"], {}),
        ("Cast", ["p"], ["f"], FLOAT), ("Mul", ["s", "scale"], ["both"], {}), ("Mul", ["f", "both"], ["y"], {}),
    ]  # fmt: skip
    constants = {
        "table": RNG.integers(0, 256, (9, 600)).astype(np.uint8), "w": (CODES // 2).astype(np.int8),
        "zero": np.uint8(128), "s": np.float32(0.01), "scale": SCALES["columns"],
    }  # fmt: skip
    model = make_model(nodes, {"at": (4,)}, ["y"], constants)
    model.graph.input[0].type.tensor_type.elem_type = 6
    at = np.array([0, 5, 8, 3], np.int32)
    there, here = run_there(model, {"at": at})["y"], run_here(model, {"at": at}, quant)["y"]
    bound = {"float32": 1e-6, "float16": 2e-3, "w8a8h1_sefp": 3e-2}[quant]
    np.testing.assert_allclose(here, there, atol=bound * np.abs(there).max())


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


OWN = {"domain": "com.microsoft"}
LAST = OWN | {"channels_last": 1}
C = ["qs", "qz"]  # of every operand; "rs" and "rz" of results
# From the codes "q" [2, 8, 4, 4] to the codes "r".
MICROSOFT = {
    "QLinearAdd": [("QLinearAdd", ["q", *C, "other", *C, "rs", "rz"], ["r"], OWN)],
    "QLinearMul": [("QLinearMul", ["q", *C, "other", *C, "rs", "rz"], ["r"], OWN)],
    "QLinearSigmoid": [("QLinearSigmoid", ["q", *C, "rs", "rz"], ["r"], OWN)],
    "QLinearLeakyRelu": [("QLinearLeakyRelu", ["q", *C, "rs", "rz"], ["r"], OWN | {"alpha": 0.2})],
    "QLinearSoftmax": [("QLinearSoftmax", ["q", *C, "rs", "rz"], ["r"], OWN | {"opset": 13, "axis": -1})],
    "QLinearGlobalAveragePool": [("QLinearGlobalAveragePool", ["q", *C, "rs", "rz"], ["r"], OWN)],
    "QLinearAveragePool": [
        ("QLinearAveragePool", ["q", *C, "rs", "rz"], ["r"], OWN | {"kernel_shape": [2, 2], "strides": [2, 2]})
    ],
    "QLinearConv of channels last": [
        ("QLinearConv", ["q", *C, "k", "ks", "kz", "rs", "rz"], ["r"], LAST | {"pads": [1, 1, 0, 2], "group": 2})
    ],
    "NhwcMaxPool": [("NhwcMaxPool", ["q"], ["r"], OWN | {"kernel_shape": [3, 2], "strides": [2, 1]})],
    "QLinearAveragePool of channels last": [
        ("QLinearAveragePool", ["q", *C, "rs", "rz"], ["r"], LAST | {"kernel_shape": [3, 2]})
    ],
    "QLinearGlobalAveragePool of channels last": [("QLinearGlobalAveragePool", ["q", *C, "rs", "rz"], ["r"], LAST)],
    "QLinearWhere": [("QLinearWhere", ["mask", "q", *C, "other", *C, "rs", "rz"], ["r"], OWN)],
    "QLinearConcat": [("QLinearConcat", ["rs", "rz", "q", *C, "q", *C], ["r"], OWN | {"axis": 1})],
    "QGemm": [
        ("Flatten", ["q"], ["f"], {}),
        ("QGemm", ["f", *C, "w", "ws", "wz", "b", "rs", "rz"], ["r"], OWN | {"transB": 1}),
    ],
}


@pytest.mark.parametrize("name", MICROSOFT)
def test_ops_of_onnxruntime_s_domain_differ_from_it_by_a_code_at_most(name, make_model, run_here, run_there):
    last = ("DequantizeLinear", ["r", "rs", "rz"], ["y"], {})
    nodes = [("QuantizeLinear", ["x", *C], ["q"], {}), *MICROSOFT[name], last]
    constants = {
        "qs": np.float32(0.02), "qz": np.uint8(120), "rs": np.float32(0.05), "rz": np.uint8(90),
        "other": RNG.integers(0, 256, (8, 1, 1)).astype(np.uint8), "w": RNG.integers(-64, 64, (6, 128)).astype(np.int8),
        "ws": RNG.uniform(0.001, 0.01, 6).astype(np.float32), "wz": np.zeros(6, np.int8),
        "b": RNG.integers(-500, 500, 6).astype(np.int32), "k": RNG.integers(-64, 64, (6, 2, 3, 3)).astype(np.int8),
        "ks": RNG.uniform(0.001, 0.01, 6).astype(np.float32), "kz": np.zeros(6, np.int8),
        "mask": RNG.integers(0, 2, (2, 1, 4, 4)).astype(bool),
    }  # fmt: skip
    read = {operand for _, operands, _, _ in nodes for operand in operands}
    model = make_model(nodes, {"x": (2, 8, 4, 4)}, ["y"], {key: constants[key] for key in constants.keys() & read})
    entry = model.opset_import.add()
    entry.domain, entry.version = "com.microsoft", 1
    x = np.random.default_rng(1).normal(size=(2, 8, 4, 4)).astype(np.float32)
    here, there = run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"]
    assert here.shape == there.shape
    steps = np.abs(here - there) / 0.05
    assert steps.max() < 1.01
    assert (steps > 0.5).mean() < 0.1


def test_codes_of_a_computed_scale_are_dequantised(make_model, run_here, run_there):
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {}), ("Transpose", ["q"], ["t"], {}),
        ("DequantizeLinear", ["t", "s", "z"], ["y"], {}),
    ]  # fmt: skip
    model = make_model(nodes, {"x": X.shape}, ["y"])
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"], atol=1e-6)


def test_a_weight_of_codes_of_many_channels_is_a_constant(make_model, run_here, run_there):
    """Its scales would repeat along its last axis, as numpy has it, to more than the compiler makes of constants."""
    weight = RNG.integers(-127, 128, (512, 512, 1, 1)).astype(np.int8)
    nodes = [("DequantizeLinear", ["w", "s"], ["f"], {"axis": 0}), ("Conv", ["x", "f"], ["y"], {})]
    scales = RNG.uniform(0.001, 0.01, 512).astype(np.float32)
    model = make_model(nodes, {"x": (1, 512, 2, 2)}, ["y"], {"w": weight, "s": scales})
    x = RNG.normal(size=(1, 512, 2, 2)).astype(np.float32)
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"], atol=1e-3)


def test_encoders_of_dynamic_quantisers_differ_from_onnxruntime_by_its_roundings(make_model, run_here, run_there):
    """The embedding of codes, its rows as codes of their range, and attention of these."""
    tables = {"words": (9, 16), "places": (8, 16), "kinds": (2, 16), "gamma": (16,), "beta": (16,)}
    codes = {name: RNG.integers(-60, 60, shape).astype(np.int8) for name, shape in tables.items()}
    scales = {f"{name}_s": np.float32(RNG.uniform(0.005, 0.01)) for name in tables}
    zeros = {f"{name}_z": np.int8(RNG.integers(-5, 5)) for name in tables}
    weight = {
        "w": RNG.integers(-60, 60, (16, 48)).astype(np.int8), "ws": RNG.uniform(0.005, 0.01, 48).astype(np.float32),
        "wz": np.zeros(48, np.int8), "b": RNG.normal(0, 0.3, 48).astype(np.float32),
    }  # fmt: skip
    embedded = ["ids", "kind", *tables, "mask", *scales, *zeros]
    nodes = [
        ("QEmbedLayerNormalization", embedded, ["e", "n"], OWN),
        ("DynamicQuantizeLinear", ["e"], ["q", "qs", "qz"], {}),
        ("QAttention", ["q", "w", "b", "qs", "ws", "n", "qz", "wz"], ["y"], OWN | {"num_heads": 4}),
    ]
    given = {"ids": np.array([[3, 1, 4, 1, 5], [2, 7, 1, 0, 0]]), "kind": np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])}
    given["mask"] = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    feeds = {name: array.astype(np.int32) for name, array in given.items()}
    shapes = {name: array.shape for name, array in feeds.items()}
    model = make_model(nodes, shapes, ["y"], codes | scales | zeros | weight)
    for info in model.graph.input:
        info.type.tensor_type.elem_type = 6
    entry = model.opset_import.add()
    entry.domain, entry.version = "com.microsoft", 1
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=2e-5)
