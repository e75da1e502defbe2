"""Ops with channels last between Transposes, as TensorFlow's converters write them, take the order around them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tcim_lite import hmm
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.fuse.layout import ONE_TO_ONE
from tcim_lite.models.onnx.table import LOWERINGS

RNG = np.random.default_rng(5)
X = {"x": (2, 6, 5, 7), "small": (2, 1, 1, 6), "large": (2, 5, 7, 6)}
LAST, FIRST = {"perm": [0, 2, 3, 1]}, {"perm": [0, 3, 1, 2]}
CONSTANTS = {
    "w": RNG.normal(size=(6, 1, 3, 3)).astype(np.float32),
    "channels": RNG.normal(size=6).astype(np.float32),
    "rows": RNG.normal(size=(5, 1, 1)).astype(np.float32),
    "whole": RNG.normal(size=(2, 5, 7, 6)).astype(np.float32),
    "three": np.float32(3),
    "least": np.float32(0),
    "most": np.float32(6),
    "axes": np.array([1, 2]),
    "last": np.array([-1]),
    "pads": np.array([0, 0, 1, 0, 0, 1, 2, 0]),
    "odd": np.array([0, 0, 0, 1, 0, 0, 0, 2]),
}
BEGIN, END = ("Transpose", ["x"], ["a"], LAST), ("Transpose", ["b"], ["c"], FIRST)
CONV = {"group": 6, "kernel_shape": [3, 3], "strides": [2, 2]}

# name: (nodes between a and b, Transposes that are left)
REGIONS = {
    "constants of every shape": (
        [
            ("Add", ["a", "channels"], ["d"], {}),
            ("Mul", ["rows", "d"], ["e"], {}),
            ("Sub", ["e", "whole"], ["f"], {}),
            ("Clip", ["f", "least", "most"], ["b"], {}),
        ],
        0,
    ),
    "written-out HardSwish": (
        [
            ("Add", ["a", "three"], ["d"], {}),
            ("Clip", ["d", "least", "most"], ["e"], {}),
            ("Div", ["e", "most"], ["f"], {}),
            ("Mul", ["a", "f"], ["b"], {}),
        ],
        0,
    ),
    "a Silu": ([("Sigmoid", ["a"], ["d"], {}), ("Mul", ["a", "d"], ["e"], {}), ("Abs", ["e"], ["b"], {})], 0),
    "angles": ([("Atan", ["a"], ["d"], {}), ("Mod", ["d", "three"], ["e"], {"fmod": 1}), ("Tan", ["e"], ["b"], {})], 0),
    "a mean of the planes": ([("ReduceMean", ["a"], ["d"], {"axes": [1, 2]}), ("Mul", ["a", "d"], ["b"], {})], 0),
    "a sum of the channels": (
        [("ReduceSum", ["a", "last"], ["d"], {"keepdims": 1}), ("Sub", ["a", "d"], ["b"], {})],
        1,  # before the sum, which is one of last axes
    ),
    "pads": ([("Pad", ["a", "odd"], ["b"], {})], 0),
    "Concat": ([("Neg", ["a"], ["d"], {}), ("Concat", ["a", "d", "whole"], ["b"], {"axis": 3})], 0),
    "Softmax, which is one of last axes": ([("Softmax", ["a"], ["b"], {})], 2),
    "Where": ([("Greater", ["a", "channels"], ["d"], {}), ("Where", ["d", "a", "whole"], ["b"], {})], 0),
    "a small operand from outside": ([("Mul", ["a", "small"], ["b"], {})], 0),
    "a large operand from outside": ([("Mul", ["a", "large"], ["b"], {})], 2),
    "rows that are not known to be channels last": (
        [("MatMul", ["a", "square"], ["d"], {}), ("Relu", ["d"], ["b"], {})],
        2,
    ),
}


def ops_of(model, tmp_path):
    path = tmp_path / "net.hmm"
    path.write_bytes(onnx_bytes(model, "float32"))
    return Counter(op.kind for op in hmm.read(path).graphs[0].ops)


def check(model, inputs, run_here, run_there, outputs):
    feeds = {name: RNG.normal(size=X[name]).astype(np.float32) for name in inputs}
    got, wanted = run_here(model, feeds), run_there(model, feeds)
    for name in outputs:
        assert got[name].shape == wanted[name].shape
        np.testing.assert_allclose(got[name], wanted[name], rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("region", REGIONS)
def test_a_region_takes_the_order_around_it(region, make_model, run_here, run_there, tmp_path):
    nodes, left = REGIONS[region]
    inputs = {name: X[name] for name in X if name == "x" or any(name in node[1] for node in nodes)}
    constants = {**CONSTANTS, "square": np.eye(6, dtype=np.float32)[::-1].copy()}
    model = make_model([BEGIN, *nodes, END], inputs, ["c"], constants)
    assert ops_of(model, tmp_path)["Transpose"] == left
    check(model, inputs, run_here, run_there, ["c"])


def test_every_op_of_elements_may_be_in_a_region():
    of_elements = {
        op
        for (domain, op), lowering in LOWERINGS.items()
        if not domain and lowering.__module__.rsplit(".", 1)[1] in ("activation", "curves", "bits", "elementwise")
    }
    assert of_elements - ONE_TO_ONE == {"Dropout"}  # which is taken out before


def test_outputs_and_readers_outside_keep_their_order(make_model, run_here, run_there, tmp_path):
    """Two convolutions read the sum, which is an output with channels last; a mean without its axes is one too."""
    nodes = [
        BEGIN,
        ("Add", ["a", "channels"], ["sum"], {}),
        ("Relu", ["sum"], ["b"], {}),
        ("ReduceMean", ["b"], ["mean"], {"axes": [1, 2], "keepdims": 0}),
        END,
        ("Conv", ["c", "w"], ["y"], CONV),
        ("Transpose", ["b"], ["again"], FIRST),
        ("Neg", ["again"], ["z"], {}),
    ]
    outputs = ["sum", "mean", "y", "z"]
    model = make_model(nodes, {"x": X["x"]}, outputs, CONSTANTS)
    assert ops_of(model, tmp_path)["Transpose"] == 1
    check(model, ["x"], run_here, run_there, outputs)


def test_three_axes_whose_order_is_the_order_back(make_model, run_here, run_there):
    """A Transpose behind a region is then one before the next."""
    turn = {"perm": [0, 2, 1]}
    nodes = [
        ("Transpose", ["x"], ["a"], turn),
        ("ReduceMax", ["a"], ["most"], {"axes": [2], "keepdims": 0}),
        ("Transpose", ["a"], ["b"], turn),
        ("Relu", ["b"], ["c"], {}),
        ("Transpose", ["c"], ["d"], turn),
        ("Neg", ["d"], ["e"], {}),
        ("Transpose", ["e"], ["y"], turn),
    ]
    model = make_model(nodes, {"x": (2, 6, 5)}, ["most", "y"])
    feeds = {"x": RNG.normal(size=(2, 6, 5)).astype(np.float32)}
    got, wanted = run_here(model, feeds), run_there(model, feeds)
    for name in ("most", "y"):
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)


def test_nothing_changes_where_transposes_would_move_more(make_model, tmp_path):
    """Nobody transposes the results back, and there are two."""
    nodes = [BEGIN, ("Relu", ["a"], ["y"], {}), ("Neg", ["a"], ["z"], {})]
    assert ops_of(make_model(nodes, {"x": X["x"]}, ["y", "z"]), tmp_path)["Transpose"] == 1


def test_a_padded_convolution_of_keras_is_one_op(make_model, run_here, run_there, tmp_path):
    """ZeroPadding2D, DepthwiseConv2D, BatchNormalization and HardSwish of MobileNetV3."""
    nodes = [
        BEGIN,
        ("Pad", ["a", "pads"], ["d"], {}),
        ("Transpose", ["d"], ["e"], FIRST),
        ("Conv", ["e", "w"], ["f"], CONV),
        ("Transpose", ["f"], ["g"], LAST),
        ("Mul", ["g", "channels"], ["h"], {}),
        ("Add", ["h", "channels"], ["i"], {}),
        ("Relu", ["i"], ["b"], {}),
        END,
    ]
    model = make_model(nodes, {"x": X["x"]}, ["c"], CONSTANTS)
    assert ops_of(model, tmp_path) == {"Conv": 1, "Relu": 1}
    check(model, ["x"], run_here, run_there, ["c"])
