"""Values that are computed when a network is compiled: large products, standardised weights, five axes."""

from __future__ import annotations

import numpy as np

from tcim_lite import hmm
from tcim_lite.models.onnx import onnx_bytes


def test_weights_that_a_batch_norm_standardises_are_constants(make_model, run_here, run_there):
    """As NFNets are exported: the norm of a training's batch, over weights."""
    rng, ones = np.random.default_rng(4), np.ones(128, np.float32)
    flat = rng.normal(size=(1, 128, 576)).astype(np.float32)
    attributes = {"training_mode": 1, "epsilon": 1e-5}
    norm = ("BatchNormalization", ["flat", "s", "b", "m", "v"], ["n", "mean", "var"], attributes)
    nodes = [norm, ("Reshape", ["n", "shape"], ["w"], {}), ("Conv", ["x", "w"], ["y"], {})]
    constants = {"flat": flat, "s": 0.1 * ones, "b": 0 * ones, "m": 0 * ones, "v": ones}
    model = make_model(nodes, {"x": (1, 64, 5, 5)}, ["y"], constants | {"shape": np.array([128, 64, 3, 3])})
    feeds = {"x": rng.normal(size=(1, 64, 5, 5)).astype(np.float32)}
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], rtol=1e-5, atol=1e-5)


def test_large_products_of_constants_are_computed_once(make_model, run_here, run_there, tmp_path):
    """As DeBERTa projects the table of relative positions in each layer."""
    rng = np.random.default_rng(5)
    constants = {name: rng.normal(size=(640, 512)).astype(np.float32) for name in ("table", "other")}
    constants |= {"w": rng.normal(size=(512, 512)).astype(np.float32) / 32, "b": np.ones(512, np.float32)}
    nodes = [
        ("MatMul", ["table", "w"], ["a"], {}),
        ("Gemm", ["other", "w", "b"], ["c"], {"transB": 1}),
        ("Add", ["x", "a"], ["xa"], {}),
        ("Add", ["xa", "c"], ["y"], {}),
    ]
    model, feeds = make_model(nodes, {"x": (640, 512)}, ["y"], constants), {"x": constants["other"]}
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], rtol=1e-5, atol=1e-5)
    (tmp_path / "net.hmm").write_bytes(onnx_bytes(model, "float32"))
    assert {op.kind for op in hmm.read(tmp_path / "net.hmm").graphs[0].ops} == {"Add"}


def test_constants_of_five_axes_stand_beside_others(make_model, run_here, run_there):
    """Their first axis is 1, and a weight has four."""
    nodes = [("Concat", ["few", "x"], ["a"], {"axis": 3}), ("Concat", ["a", "more"], ["y"], {"axis": -1})]
    constants = {"few": np.ones((1, 2, 3, 1, 2), np.float32), "more": np.ones((1, 2, 3, 5, 3), np.float32)}
    model = make_model(nodes, {"x": (1, 2, 3, 4, 2)}, ["y"], constants)
    x = np.arange(48, dtype=np.float32).reshape(1, 2, 3, 4, 2)
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"])
