"""Ops of ai.onnx.ml that converters of scikit-learn write, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(4)
ML = {"domain": "ai.onnx.ml"}
X = RNG.normal(size=(6, 5)).astype(np.float32)
X[2] = 0
LINEAR = {"coefficients": RNG.normal(size=15).tolist(), "intercepts": [0.1, -0.2, 0.3]}
OFFSETS = {"offset": RNG.normal(size=5).tolist(), "scale": RNG.uniform(0.5, 2, 5).tolist()}
# Nodes that read "x" of X and constants; outputs "y", and "label".
CASES = {
    "Scaler": ([("Scaler", ["x"], ["y"], OFFSETS | ML)], {}),
    "Scaler of one number": ([("Scaler", ["x"], ["y"], {"offset": [0.5], "scale": [2.0], **ML})], {}),
    "Normalizer by the largest": ([("Normalizer", ["x"], ["y"], {"norm": "MAX", **ML})], {}),
    "Normalizer by the sum": ([("Normalizer", ["x"], ["y"], {"norm": "L1", **ML})], {}),
    "Normalizer by the length": ([("Normalizer", ["x"], ["y"], {"norm": "L2", **ML})], {}),
    "Binarizer": ([("Binarizer", ["x"], ["y"], {"threshold": 0.25, **ML})], {}),
    "features of rows": ([("ArrayFeatureExtractor", ["x", "i"], ["y"], ML)], {"i": np.array([[3, 0, 3]])}),
    "labels of places": (
        [
            ("ArgMax", ["x"], ["a"], {"axis": 1}),
            ("ArrayFeatureExtractor", ["c", "a"], ["label"], ML),
        ],
        {"c": np.array([7, 3, 9, -2, 5])},
    ),
    "LinearRegressor": ([("LinearRegressor", ["x"], ["y"], {"targets": 3, **LINEAR, **ML})], {}),
    "LinearClassifier": (
        [("LinearClassifier", ["x"], ["label", "y"], {"classlabels_ints": [4, 8, 2], **LINEAR, **ML})], {}
    ),
    "LinearClassifier of probabilities": (
        [("LinearClassifier", ["x"], ["label", "y"],
          {"classlabels_ints": [0, 1, 2], "post_transform": "SOFTMAX", **LINEAR, **ML})], {},
    ),
    "LinearClassifier of texts": (
        [("LinearClassifier", ["x"], ["texts", "y"],
          {"classlabels_strings": ["a", "b", "c"], "post_transform": "LOGISTIC", **LINEAR, **ML})], {},
    ),
}  # fmt: skip


def classical(make_model, nodes, constants):
    outputs = [name for name in ("label", "y") if name in nodes[-1][2]]
    model = make_model(nodes, {"x": X.shape}, outputs, constants)
    for info in model.graph.output:
        if info.name == "label":
            info.type.tensor_type.elem_type = 7  # TensorProto.INT64
    entry = model.opset_import.add()
    entry.domain, entry.version = "ai.onnx.ml", 3
    return model


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(name, make_model, run_here, run_there):
    model = classical(make_model, *CASES[name])
    here, there = run_here(model, {"x": X}), run_there(model, {"x": X})
    for key, wanted in there.items():
        np.testing.assert_allclose(here[key].reshape(wanted.shape), wanted, rtol=2e-6, atol=3e-7)


REFUSED = {
    "its result is a dictionary; expected a model that was converted with zipmap=False": (
        "ZipMap", {"classlabels_int64s": [0, 1, 2, 3, 4]},
    ),
    "4 numbers in 'scale' for 5 features": ("Scaler", {"scale": [1.0] * 4}),
    "post_transform 'PROBIT'; expected NONE, LOGISTIC, SOFTMAX": (
        "LinearRegressor", {"targets": 3, "post_transform": "PROBIT", **LINEAR},
    ),
    "3 intercepts for 2 labels": ("LinearClassifier", {"classlabels_ints": [0, 1], **LINEAR}),
    "15 coefficients and 3 intercepts for 2 outputs of 5 features": ("LinearRegressor", {"targets": 2, **LINEAR}),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_forms_that_are_not_supported_are_refused_by_name(message, make_model):
    op, attributes = REFUSED[message]
    model = classical(make_model, [(op, ["x"], ["y"], attributes | ML)], {})
    with pytest.raises(TcimError) as error:
        onnx_bytes(model, "float32")
    assert message in str(error.value)
    assert "node 'n0'" in str(error.value)


def test_labels_that_are_texts_are_refused_as_an_output(make_model):
    attributes = {"classlabels_strings": ["a", "b", "c"], **LINEAR, **ML}
    model = classical(make_model, [("LinearClassifier", ["x"], ["label", "y"], attributes)], {})
    with pytest.raises(TcimError, match="its output 'label' is not supported"):
        onnx_bytes(model, "float32")
