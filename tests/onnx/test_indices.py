"""Arithmetic with indices of TopK and ArgMax, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

X = np.random.default_rng(6).normal(size=(3, 40)).astype(np.float32)
TOP = [("TopK", ["x", "k"], ["best", "at"], {})]
FLOAT = {"to": 1}
CONSTANTS = {"k": np.array([7]), "c": np.array(6), "row": np.arange(0, 40, 9), "last": np.array([-1])}

# What is computed of "at" into "r".
CASES = {
    "a quotient": [("Div", ["at", "c"], ["r"], {})],
    "a rest": [("Mod", ["at", "c"], ["r"], {})],
    "a product of a sum": [("Add", ["at", "c"], ["s"], {}), ("Mul", ["c", "s"], ["r"], {})],
    "a constant by an index": [("Add", ["at", "c"], ["s"], {}), ("Div", ["c", "s"], ["r"], {})],
    "of two indices": [("Mul", ["at", "at"], ["s"], {}), ("Sub", ["s", "at"], ["r"], {})],
    "limits": [("Max", ["at", "c"], ["s"], {}), ("Min", ["s", "k"], ["r"], {})],
    "comparisons": [("Equal", ["at", "c"], ["e"], {}), ("Less", ["at", "c"], ["s"], {}), ("Or", ["e", "s"], ["r"], {})],
    "a comparison with each of a row": [("Unsqueeze", ["at", "last"], ["u"], {}), ("Equal", ["u", "row"], ["r"], {})],
    "a truth": [("Cast", ["at"], ["r"], {"to": 9})],
    "a number": [],
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(name, make_model, run_here, run_there):
    nodes = CASES[name]
    last = ("Cast", ["r" if nodes else "at"], ["y"], FLOAT)
    model = make_model([*TOP, *nodes, last], {"x": X.shape}, ["y"], CONSTANTS)
    np.testing.assert_array_equal(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"])


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("at", [0, 3, 14, -20])
def test_rows_from_a_computed_place_on(at, step, of_integers, run_here, run_there):
    """`x[1:, n : n + 6 : step]`, as decoders of streams take positions from a table."""
    nodes = [
        ("Squeeze", ["n"], ["scalar"], {}),
        ("Add", ["six", "scalar"], ["later"], {}),
        ("Unsqueeze", ["later", "zero"], ["row"], {}),
        ("Gather", ["row", "first"], ["item"], {}),
        ("Unsqueeze", ["item", "zero"], ["end"], {}),
        ("Concat", ["one", "n"], ["starts"], {"axis": 0}),
        ("Concat", ["all", "end"], ["ends"], {"axis": 0}),
        ("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"], {}),
    ]
    constants = {
        "six": np.array(6),
        "zero": np.array([0]),
        "first": np.array(0),
        "one": np.array([1]),
        "all": np.array([2**62]),
    }
    model = of_integers(
        nodes, {"x": (3, 20), "n": (1,)}, ["y"], constants | {"axes": np.array([0, 1]), "steps": np.array([1, step])}
    )
    feeds = {"x": X[:, :20], "n": np.array([at])}
    np.testing.assert_array_equal(run_here(model, feeds)["y"], run_there(model, feeds)["y"])


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([("Mul", ["n", "n"], ["e"], {})], "its bounds are computed by the network; expected constants, or an end"),
        ([("Sub", ["big", "n"], ["e"], {})], "its bounds are computed by the network; expected constants, or an end"),
        ([("Add", ["n", "big"], ["e"], {})], "21 elements from a computed place on, of an axis of 20"),
    ],
)
def test_other_computed_bounds_are_refused(nodes, text, of_integers):
    model = of_integers(
        [*nodes, ("Slice", ["x", "n", "e", "one"], ["y"], {})], {"x": (3, 20), "n": (1,)}, ["y"],
        {"big": np.array([21]), "one": np.array([1])},
    )  # fmt: skip
    with pytest.raises(TcimError, match=text):
        onnx_bytes(model, "float32")


def test_boxes_and_classes_of_the_best_scores(make_model, run_here, run_there):
    """As heads without suppression end: the best of all classes of all boxes, and from their places both."""
    nodes = [
        ("Slice", ["x", "zero", "four", "two"], ["boxes"], {}),
        ("Slice", ["x", "four", "nine", "two"], ["scores"], {}),
        ("Reshape", ["scores", "flat"], ["all"], {}),
        ("TopK", ["all", "k"], ["best", "at"], {}),
        ("Div", ["at", "classes"], ["box"], {}),
        ("Mod", ["at", "classes"], ["class"], {}),
        ("Unsqueeze", ["box", "last"], ["column"], {}),
        ("Concat", ["batch", "column"], ["places"], {"axis": -1}),
        ("GatherND", ["boxes", "places"], ["chosen"], {}),
        ("Unsqueeze", ["class", "last"], ["c"], {}),
        ("Cast", ["c"], ["cf"], FLOAT),
        ("Concat", ["chosen", "cf"], ["y"], {"axis": -1}),
    ]
    constants = {"zero": np.array([0]), "four": np.array([4]), "nine": np.array([9]), "two": np.array([2])}
    constants |= {"flat": np.array([1, -1]), "k": np.array([6]), "classes": np.array(5), "last": np.array([-1])}
    constants |= {"batch": np.zeros((1, 6, 1), np.int64)}
    x = np.random.default_rng(7).normal(size=(1, 20, 9)).astype(np.float32)
    model = make_model(nodes, {"x": x.shape}, ["y"], constants)
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"])
