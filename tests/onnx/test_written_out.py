"""Ops of ONNX that are computed by others, such as Attention, against ONNX's reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

from onnx.reference import ReferenceEvaluator

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 6, 32)).astype(np.float32)
WEIGHTS = {name: RNG.normal(size=(32, width)).astype(np.float32) / 6 for name, width in (("wq", 32), ("wk", 16))}
COS, SIN = (f(RNG.uniform(0, 3, size=(6, 4))).astype(np.float32) for f in (np.cos, np.sin))
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
MASK = np.where(np.tri(6) > 0, 0, -9).astype(np.float32)
QK = [("MatMul", ["x", "wq"], ["q"], {}), ("MatMul", ["x", "wk"], ["k"], {})]
CASES = {
    "grouped heads": ([*QK, ("Attention", ["q", "k", "k"], ["y"], HEADS)], {}),
    "causal": ([*QK, ("Attention", ["q", "k", "k"], ["y"], {**HEADS, "is_causal": 1, "scale": 0.3})], {}),
    "a mask": ([*QK, ("Attention", ["q", "k", "k", "m"], ["y"], HEADS)], {"m": MASK}),
    "rotated": (
        [
            *QK,
            ("RotaryEmbedding", ["k", "c", "s"], ["r"], {"num_heads": 2}),
            ("Attention", ["q", "r", "k"], ["y"], HEADS),
        ],
        {"c": np.stack([COS, COS]), "s": np.stack([SIN, SIN])},
    ),
}


def test_a_cache_is_read_and_returned_without_a_mask_before_it(make_model, run_here):
    node = ("Attention", ["q", "k", "k", "", "p", "p"], ["y", "keys", "values"], {**HEADS, "is_causal": 1})
    past = RNG.normal(size=(2, 2, 3, 8)).astype(np.float32)
    model = make_model([*QK, node], {"x": X.shape, "p": past.shape}, node[2], WEIGHTS, 23)
    read = model.SerializeToString()
    got = run_here(model, {"x": X, "p": past})
    for name, expected in zip(node[2], ReferenceEvaluator(model).run(None, {"x": X, "p": past}), strict=True):
        np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5)
    assert model.SerializeToString() == read  # the compiler writes into a copy


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_definition(name, opset, make_model, run_here):
    nodes, constants = CASES[name]
    model = make_model(nodes, {"x": X.shape}, ["y"], WEIGHTS | constants, opset)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": X})
    np.testing.assert_allclose(run_here(model, {"x": X})["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("node", "opset", "text"),
    [
        (("Attention", ["q", "k", "k"], ["y"], {**HEADS, "left_window_size": 2}), 24, "'left_window_size'"),
        (("Attention", ["q", "k", "k"], ["y"], HEADS), 22, "opset 22 has no such op"),
        (("Attention", ["q", "k", "none"], ["y"], HEADS), 23, "'n2' (Attention)"),
    ],
)
def test_what_the_definition_does_not_cover_is_refused(node, opset, text, make_model):
    model = make_model([*QK, node], {"x": X.shape}, ["y"], WEIGHTS, opset)
    with pytest.raises(TcimError) as error:
        onnx_bytes(model, "float32")
    assert text in str(error.value)
