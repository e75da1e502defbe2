"""Networks whose values a quantiser has rounded to codes (QuantizeLinear, DequantizeLinear), against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite import hmm
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.errors import UnsupportedNodeError

X = np.random.default_rng(41).normal(size=(2, 3, 8, 8)).astype(np.float32)
STEP = np.float32(0.05)


def rounded(name, scale, zero):
    """Nodes that round a value to codes and back."""
    return [
        ("QuantizeLinear", [name, scale, zero], [f"{name}_code"], {}),
        ("DequantizeLinear", [f"{name}_code", scale, zero], [f"{name}_again"], {}),
    ]


@pytest.fixture
def network(make_model):
    """As quantisers write it: codes of 8 bits for images and weights, a scale for each channel, biases of 32 bits."""
    rng = np.random.default_rng(42)
    constants = {
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.001, 0.004, 8).astype(np.float32),
        "wz": np.zeros(8, np.int8),
        "b": rng.integers(-9000, 9000, 8).astype(np.int32),
        "bs": rng.uniform(5e-5, 1e-4, 8).astype(np.float32),
        "s": np.float32(0.03),
        "z": np.uint8(120),
        "ys": STEP,
        "yz": np.uint8(3),
    }
    nodes = [
        *rounded("x", "s", "z"),
        ("DequantizeLinear", ["w", "ws", "wz"], ["weight"], {"axis": 0}),
        ("DequantizeLinear", ["b", "bs"], ["bias"], {"axis": 0}),
        ("Conv", ["x_again", "weight", "bias"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        *rounded("r", "ys", "yz"),
        ("MaxPool", ["r_again"], ["y"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ]
    return make_model(nodes, {"x": X.shape}, ["y"], constants)


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
def test_results_are_those_of_onnxruntime_but_for_a_step(quant, network, run_here, run_there):
    """Sums near the middle between two codes may go either way; float16 holds steps up to 12.75 within 0.004."""
    here, there = run_here(network, {"x": X}, quant)["y"], run_there(network, {"x": X})["y"]
    steps = np.abs(here - there) / STEP
    assert steps.max() < (1.01 if quant == "float32" else 1.1)
    assert (steps > 0.5).mean() < (0.001 if quant == "float32" else 0.05)


@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127), ("int16", -32768, 32767)])
def test_codes_end_at_the_limits_of_their_type(dtype, low, high, make_model, run_here):
    x = np.float32([-1e9, -1, -0.75, -0.25, 0, 0.25, 0.75, 1.25, 1e9])
    nodes = [("QuantizeLinear", ["x", "s", "z"], ["y"], {})]
    model = make_model(nodes, {"x": x.shape}, ["y"], {"s": np.float32(0.5), "z": np.array(5, dtype)})
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], np.clip(np.rint(x / 0.5) + 5, low, high))


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("uint4", 0, 15), ("int4", -8, 7), ("uint2", 0, 3), ("int2", -2, 1)]
)
def test_codes_of_a_few_bits_end_at_the_limits_of_their_type(dtype, low, high, make_model, run_here):
    from onnx import TensorProto, helper

    x = np.float32([-1e9, -3, -0.75, -0.25, 0, 0.25, 0.75, 1.25, 3, 1e9])
    model = make_model(rounded("x", "s", "z"), {"x": x.shape}, ["x_again"], {"s": np.float32(0.5)}, opset=25)
    model.graph.initializer.append(helper.make_tensor("z", getattr(TensorProto, dtype.upper()), [], [1]))
    wanted = (np.clip(np.rint(x / 0.5) + 1, low, high) - 1) * 0.5
    np.testing.assert_array_equal(run_here(model, {"x": x})["x_again"], wanted)


def test_scales_along_an_axis(make_model, run_here, run_there):
    scale = np.float32([0.5, 0.25, 0.125])
    model = make_model(
        rounded("x", "s", "z"), {"x": X.shape}, ["x_again"], {"s": scale, "z": np.array([1, 2, 3], "u1")}
    )
    np.testing.assert_array_equal(run_here(model, {"x": X})["x_again"], run_there(model, {"x": X})["x_again"])


def test_what_is_not_supported_is_refused_with_the_node(make_model):
    constants = {"s": np.float32(0.5), "z": np.array(5, np.int16), "many": np.ones(4, np.float32)}
    for operands, message in (
        (["x", "s", "z"], "codes of int16; supported are 2, 4 and 8 bits"),
        (["x", "many"], r"scales \[4\] for \[2, 3, 8, 8\]"),
        (["x", "x"], "the scale is computed by the network"),
    ):
        model = make_model([("QuantizeLinear", operands, ["y"], {})], {"x": X.shape}, ["y"], constants)
        with pytest.raises(UnsupportedNodeError, match=rf"node 'n0' \(QuantizeLinear\): {message}"):
            onnx_bytes(model, "float16")


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize(("dtype", "zero"), [("uint16", 30000), ("int16", -7)])
def test_codes_of_16_bits_around_a_convolution(quant, domain, dtype, zero, make_model, run_here, run_there):
    """As quantisers write 16-bit activations; the bias has codes of 32 bits. Some numbers are beyond the codes."""
    x = np.linspace(-9, 9, 2 * 8 * 25, dtype=np.float32).reshape(2, 8, 5, 5)
    constants = {
        "s": np.float32(1e-4), "z": np.array(zero, dtype), "bs": np.float32(1e-6),
        "w": np.random.default_rng(1).integers(-9, 9, (4, 8, 3, 3)).astype(np.int8), "ws": np.float32(0.01),
        "b": np.arange(4, dtype=np.int32) * 100000,
    }  # fmt: skip
    own = {"domain": domain} if domain else {}
    nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["xq"], own),
        ("DequantizeLinear", ["xq", "s", "z"], ["xd"], own),
        ("DequantizeLinear", ["w", "ws"], ["wd"], own),
        ("DequantizeLinear", ["b", "bs"], ["bd"], own),
        ("Conv", ["xd", "wd", "bd"], ["c"], {}),
        ("QuantizeLinear", ["c", "s", "z"], ["cq"], own),
        ("DequantizeLinear", ["cq", "s", "z"], ["y"], own),
    ]
    model = make_model(nodes, {"x": x.shape}, ["y"], constants, opset=21)
    if domain:
        model.opset_import.add(domain=domain, version=1)
    got, expected = run_here(model, {"x": x}, quant)["y"], run_there(model, {"x": x})["y"]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1.1e-4 if quant == "float32" else 0.02)


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp"])
@pytest.mark.parametrize("scale", [0.73, 1e-9, 900.0])
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 113), ("int8", -5), ("uint8", 0), ("int8", 127)])
def test_codes_and_back_are_one_function(quant, scale, dtype, zero, make_model, run_here, run_there):
    """Middles between codes, and numbers up to three times as far as codes reach; the scale may be below float16."""
    scale, limits, half = np.float32(scale), np.iinfo(dtype), quant != "float32"
    steps = np.concatenate([np.linspace(-400, 400, 4001), np.arange(-300, 300) + 0.5, [-0.0, 1e30, -1e30]])
    x = np.float32(steps * scale).reshape(1, -1)
    x = np.clip(x, -65504, 65504).astype(np.float16).astype(np.float32) if half else x
    model = make_model(rounded("x", "s", "z"), {"x": x.shape}, ["x_again"], {"s": scale, "z": np.array(zero, dtype)})
    y = np.clip(np.rint(x / scale), limits.min - zero, limits.max - zero) * scale + np.float32(0)
    y = np.clip(y, -65504, 65504).astype(np.float16).astype(np.float32) if half else y
    got = run_here(model, {"x": x}, quant)["x_again"]
    np.testing.assert_array_equal(got.view(np.int32), y.view(np.int32))
    if not half:
        np.testing.assert_array_equal(got.view(np.int32), run_there(model, {"x": x})["x_again"].view(np.int32))


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize(("scales", "count"), [((0.05, 0.05), (1, 1)), ((0.05, 0.04), (2, 2)), ((1e-7, 1e-7), (1, 2))])
def test_numbers_of_the_same_codes_are_left(quant, scales, count, make_model, run_here, run_there, tmp_path):
    """Where only ops are between that keep numbers, and in float16 where it tells the numbers of codes apart."""
    constants = {"s": np.float32(scales[0]), "t": np.float32(scales[1]), "z": np.array(9, "uint8")}
    nodes = [
        *rounded("x", "s", "z"),
        ("Relu", ["x_again"], ["r"], {}),
        ("MaxPool", ["r"], ["m"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Transpose", ["m"], ["y"], {"perm": [0, 2, 3, 1]}),
        *rounded("y", "t", "z"),
    ]
    model = make_model(nodes, {"x": X.shape}, ["y_again"], constants)
    path = tmp_path / "net.hmm"
    path.write_bytes(onnx_bytes(model, quant))
    kinds = [op.kind for op in hmm.read(path).graphs[0].ops]
    assert kinds.count("FakeQuantize") == count[quant == "float16"]
    if quant == "float32":
        x = X * scales[0] / STEP
        np.testing.assert_array_equal(run_here(model, {"x": x})["y_again"], run_there(model, {"x": x})["y_again"])
