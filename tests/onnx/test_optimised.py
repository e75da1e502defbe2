"""Ops that onnxruntime's optimisers write into files, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(2)
ORT = {"domain": "com.microsoft"}
X = RNG.normal(size=(2, 5, 16)).astype(np.float32)
PLANES = RNG.normal(size=(2, 4, 6, 5)).astype(np.float32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
IDS = np.array([[3, 1, 4, 1, 5], [2, 7, 1, 0, 0]])


def numbers(*shape):
    return RNG.normal(0, 0.3, shape).astype(np.float32)


def heads(**attributes):
    return {"num_heads": 4, **attributes, **ORT}


SELF = {"w": numbers(16, 48), "b": numbers(48)}
# Nodes that read "x" of X, "mask" and "ids", "p" of PLANES, and constants; they make "y".
CASES = {
    "FusedConv": (
        [("FusedConv", ["p", "k", "b", "p"], ["y"], {"activation": "Relu", "pads": [1, 1, 1, 1], **ORT})],
        {"k": numbers(4, 4, 3, 3), "b": numbers(4)},
    ),
    "FusedConv with numbers": (
        [("FusedConv", ["p", "k"], ["y"], {"activation": "Clip", "activation_params": [-0.1, 0.4], **ORT})],
        {"k": numbers(3, 4, 1, 1)},
    ),
    "FusedMatMul": (
        [("FusedMatMul", ["x", "x"], ["y"], {"transA": 1, "alpha": 0.25, **ORT})],
        {},
    ),
    "FusedMatMul of a matrix": (
        [("FusedMatMul", ["x", "w"], ["y"], {"transB": 1, "alpha": 0.5, **ORT})],
        {"w": numbers(7, 16)},
    ),
    # Queries and keys as PyTorch's newer exporter makes them.
    "FusedMatMul of turned batches": (
        [("FusedMatMul", ["p", "p"], ["y"], {"transBatchA": 1, "transBatchB": 1, "transB": 1, "alpha": 0.5, **ORT})],
        {},
    ),
    "FusedMatMul of a turned batch": (
        [("FusedMatMul", ["p", "w"], ["y"], {"transBatchA": 1, "transA": 1, **ORT})],
        {"w": numbers(4, 6, 2, 3)},
    ),
    "FusedGemm": (
        [
            ("Reshape", ["x", "s"], ["r"], {}),
            ("FusedGemm", ["r", "w", "b"], ["y"], {"activation": "LeakyRelu", "activation_alpha": 0.1, **ORT}),
        ],
        {"s": np.array([10, 16]), "w": numbers(16, 3), "b": numbers(3)},
    ),
    "Gelu": ([("Gelu", ["x"], ["y"], ORT)], {}),
    "BiasGelu": ([("BiasGelu", ["x", "b"], ["y"], ORT)], {"b": numbers(16)}),
    "FastGelu": ([("FastGelu", ["x", "b"], ["y"], ORT)], {"b": numbers(16)}),
    "QuickGelu": ([("QuickGelu", ["x"], ["y"], {"alpha": 1.5, **ORT})], {}),
    "SkipLayerNormalization": (
        [
            ("SkipLayerNormalization", ["x", "x", "g", "b", "c"], ["n", "", "", "sum"], {"epsilon": 1e-3, **ORT}),
            ("Sub", ["n", "sum"], ["y"], {}),
        ],
        {"g": numbers(16), "b": numbers(16), "c": numbers(16)},
    ),
    "SkipSimplifiedLayerNormalization": (
        [("SkipSimplifiedLayerNormalization", ["x", "x", "g"], ["y"], ORT)],
        {"g": numbers(16)},
    ),
    "SimplifiedLayerNormalization": (
        [("SimplifiedLayerNormalization", ["x", "g"], ["y"], {"epsilon": 1e-3})],
        {"g": numbers(16)},
    ),
    "EmbedLayerNormalization": (
        [
            ("EmbedLayerNormalization", ["ids", "mask", "words", "places", "kinds", "g", "b", "mask"], ["e", "n"], ORT),
            ("Attention", ["e", "w", "c", "n"], ["y"], heads()),
        ],
        {"words": numbers(9, 16), "places": numbers(8, 16), "kinds": numbers(2, 16), "g": numbers(16),
         "b": numbers(16), "w": SELF["w"], "c": SELF["b"]},
    ),
    "Attention": ([("Attention", ["x", "w", "b"], ["y"], heads())], SELF),
    "Attention with a mask": ([("Attention", ["x", "w", "b", "mask"], ["y"], heads(scale=0.4))], SELF),
    "Attention to earlier tokens": ([("Attention", ["x", "w", "b"], ["y"], heads(unidirectional=1))], SELF),
    "MultiHeadAttention": (
        [("MultiHeadAttention", ["x", "k", "v", "b", "mask"], ["y"], heads())],
        {"k": X[::-1] * 0.5, "v": X + 1, "b": numbers(48)},
    ),
}  # fmt: skip


def optimised(make_model, nodes, constants):
    inputs = {"x": X, "p": PLANES, "ids": IDS, "mask": MASK}
    read = {name for _, names, _, _ in nodes for name in names}
    feeds = {name: array for name, array in inputs.items() if name in read}
    model = make_model(nodes, {name: array.shape for name, array in feeds.items()}, ["y"], constants)
    for info in model.graph.input:
        if info.name in ("ids", "mask"):
            info.type.tensor_type.elem_type = 6
    entry = model.opset_import.add()
    entry.domain, entry.version = "com.microsoft", 1
    return model, {
        name: array.astype(np.int32 if array.dtype.kind == "i" else array.dtype) for name, array in feeds.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(name, make_model, run_here, run_there):
    model, feeds = optimised(make_model, *CASES[name])
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=3e-6)


REFUSED = {
    "activation 'Swish'": ("FusedConv", ["p", "k"], {"activation": "Swish"}),
    "a mask [2, 5, 16]": ("Attention", ["x", "w", "b", "x"], {"num_heads": 4}),
    "3 heads of 16 numbers": ("Attention", ["x", "w", "b"], {"num_heads": 3}),
    "turned batches of operands [2, 5, 16] and [16, 48]": ("FusedMatMul", ["x", "w"], {"transBatchA": 1}),
    "operand 1 is missing": ("MultiHeadAttention", ["x"], {"num_heads": 4}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_forms_that_are_not_supported_are_refused_by_name(message, make_model):
    op, names, attributes = REFUSED[message]
    model, _ = optimised(make_model, [(op, names, ["y"], {**attributes, **ORT})], SELF | {"k": numbers(3, 4, 1, 1)})
    with pytest.raises(TcimError) as error:
        onnx_bytes(model, "float32")
    assert message in str(error.value)
    assert "node 'n0'" in str(error.value)
