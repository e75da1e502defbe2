"""Files of opsets 7 to 12, whose ops have attributes where later ones have operands, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.errors import UnsupportedNodeError

onnx = pytest.importorskip("onnx", reason="needs onnx")

X = np.random.default_rng(23).normal(size=(2, 4, 6, 5)).astype(np.float32)
NORM = {name: np.linspace(low, 2, 4, dtype=np.float32) for name, low in (("s", 1), ("b", -1), ("m", 0), ("v", 0.5))}
LARGER = {"scales": [1.0, 1.0, 2.0, 3.0]}

# name: (opset, nodes, constants)
CASES = {
    "Squeeze and Unsqueeze": (
        12,
        [
            ("ReduceSum", ["x"], ["a"], {"axes": [1]}),
            ("Squeeze", ["a"], ["b"], {"axes": [1]}),
            ("Unsqueeze", ["b"], ["y"], {"axes": [0, 3]}),
        ],
        {},
    ),
    "Split": (11, [("Split", ["x"], ["a", "b"], {"axis": 2, "split": [2, 4]}), ("Exp", ["b"], ["y"], {})], {}),
    "Slice": (9, [("Slice", ["x"], ["y"], {"starts": [1, -4], "ends": [3, 1000], "axes": [1, 3]})], {}),
    "Slice of first axes": (7, [("Slice", ["x"], ["y"], {"starts": [0, 1], "ends": [1, 3]})], {}),
    "Pad": (10, [("Pad", ["x"], ["y"], {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "value": 0.5})], {}),
    "Pad by reflection": (10, [("Pad", ["x"], ["y"], {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "mode": "reflect"})], {}),
    "Clip": (10, [("Clip", ["x"], ["y"], {"min": -0.5, "max": 0.25})], {}),
    "Clip from above": (7, [("Clip", ["x"], ["y"], {"max": 0.25})], {}),
    "TopK": (9, [("TopK", ["x"], ["y", "i"], {"axis": 2, "k": 3})], {}),
    "Upsample": (7, [("Upsample", ["x"], ["y"], {"mode": "nearest", **LARGER})], {}),
    "Upsample by an operand": (
        9,
        [("Upsample", ["x", "n"], ["y"], {"mode": "linear"})],
        {"n": np.float32([1, 1, 2, 2])},
    ),
    "Resize to less and to more": (
        10,
        [("Resize", ["x", "n"], ["y"], {"mode": "nearest"})],
        {"n": np.float32([1, 1.5, 0.6, 0.9])},
    ),
    "Resize": (10, [("Resize", ["x", "n"], ["y"], {"mode": "nearest"})], {"n": np.float32([1, 1, 2, 3])}),
    "Scatter": (
        9,
        [("Scatter", ["x", "i", "u"], ["y"], {"axis": 3})],
        {"i": np.full((2, 4, 6, 1), 3), "u": np.ones((2, 4, 6, 1), np.float32)},
    ),
    "BatchNormalization": (7, [("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], {"epsilon": 1e-3})], NORM),
    "Dropout": (7, [("Dropout", ["x"], ["y"], {"ratio": 0.5})], {}),
} | {
    f"{op} of axes from {axis}": (11, [(op, ["x"], ["y"], {} if axis is None else {"axis": axis})], {})
    for op in ("Softmax", "LogSoftmax", "Hardmax")
    for axis in (None, 2, 3)
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(name, make_model, run_here, run_there):
    opset, nodes, constants = CASES[name]
    model = make_model(nodes, {"x": X.shape}, ["y"], constants, opset)
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"], rtol=3e-6, atol=3e-6)


def test_softmax_of_constants_has_the_axes_of_its_opset(make_model, run_here, run_there):
    nodes = [("Softmax", ["c"], ["s"], {"axis": 1}), ("Add", ["x", "s"], ["y"], {})]
    model = make_model(nodes, {"x": X.shape}, ["y"], {"c": X[::-1].copy()}, opset=12)
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"], atol=1e-6)


def test_an_old_file_runs(run_here):
    """SqueezeNet as onnx brings it, opset 9, its weights all alike; against the results that onnx brings."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    model = onnx.load(folder / "light_squeezenet.onnx")
    tensor = onnx.TensorProto.FromString((folder / "light_squeezenet_output_0.pb").read_bytes())
    (port,) = (info for info in model.graph.input if info.name not in {t.name for t in model.graph.initializer})
    shape = [extent.dim_value for extent in port.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    x = (np.arange(count, dtype=np.float32) / count).reshape(shape)  # as onnx.backend.test.runner has it
    got = run_here(model, {port.name: x})[model.graph.output[0].name]
    np.testing.assert_allclose(got, onnx.numpy_helper.to_array(tensor), rtol=1e-3, atol=1e-7)


def test_what_opset_13_cannot_write_is_refused_with_the_node(make_model):
    node = ("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], {"spatial": 0})
    model = make_model([node], {"x": X.shape}, ["y"], NORM, opset=7)
    with pytest.raises(UnsupportedNodeError, match=r"node 'n0' \(BatchNormalization\): spatial = 0"):
        onnx_bytes(model)
