"""If, Loop and Scan, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import OnnxOptions, check_onnx, control, onnx_bytes

X = np.random.default_rng(4).normal(size=(2, 3)).astype(np.float32)


@pytest.fixture
def graph():
    """Builds the graph of an attribute from nodes, inputs and outputs with their element types."""
    helper = pytest.importorskip("onnx", reason="needs onnx").helper

    def make(nodes, outputs, inputs=(), constants=()):
        protos = [helper.make_node(op, ins, outs, **attributes) for op, ins, outs, attributes in nodes]
        infos = [[helper.make_tensor_value_info(*info) for info in infos] for infos in (inputs, outputs)]
        return helper.make_graph(protos, "inner", *infos, list(constants))

    return make


@pytest.fixture
def branches(graph):
    """A Relu of the outer "x" and, with a name that both have, its negative."""
    return {
        "then_branch": graph([("Relu", ["x"], ["r"], {})], [("r", 1, None)]),
        "else_branch": graph([("Neg", ["x"], ["r"], {})], [("r", 1, None)]),
    }


@pytest.mark.parametrize("rows", [2, 5])
def test_an_if_of_a_shape_is_its_branch(rows, branches, make_model, run_here, run_there):
    nodes = [
        ("Shape", ["x"], ["s"], {}), ("Gather", ["s", "zero"], ["d"], {}), ("Equal", ["d", "rows"], ["c"], {}),
        ("If", ["c"], ["a"], branches), ("Add", ["a", "x"], ["b"], {}), ("If", ["c"], ["e"], branches),
        ("Mul", ["b", "e"], ["y"], {}),
    ]  # fmt: skip
    model = make_model(nodes, {"x": X.shape}, ["y"], {"zero": np.array(0), "rows": np.array(rows)})
    np.testing.assert_array_equal(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"])


def test_an_if_inside_an_if_reads_names_of_both(branches, graph, make_model, run_here, run_there):
    inner = {
        "then_branch": graph([("Add", ["x", "w"], ["v"], {})], [("v", 1, None)]),
        "else_branch": graph([("Sub", ["x", "w"], ["v"], {})], [("v", 1, None)]),
    }
    outer = graph([("Neg", ["x"], ["w"], {}), ("If", ["no"], ["q"], inner)], [("q", 1, None)])
    nodes = [("If", ["yes"], ["y"], {"then_branch": outer, "else_branch": branches["else_branch"]})]
    model = make_model(nodes, {"x": X.shape}, ["y"], {"yes": np.array(True), "no": np.array(False)})
    np.testing.assert_array_equal(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"])


def test_a_graph_inside_keeps_a_value_whose_name_a_new_one_would_have(branches, graph, make_model, run_here, run_there):
    """What is taken out of a graph is named by its node: here "y/w", which the graph inside has too."""
    inner = graph([("Abs", ["x"], ["y/w"], {}), ("Add", ["w", "y/w"], ["v"], {})], [("v", 1, None)])
    inner = {"then_branch": inner, "else_branch": branches["else_branch"]}
    outer = graph([("Neg", ["x"], ["w"], {}), ("If", ["yes"], ["q"], inner)], [("q", 1, None)])
    nodes = [("If", ["yes"], ["y"], {"then_branch": outer, "else_branch": branches["else_branch"]})]
    model = make_model(nodes, {"x": X.shape}, ["y"], {"yes": np.array(True)})
    np.testing.assert_array_equal(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"])


CONDITION = [("ReduceSum", ["x"], ["s"], {"keepdims": 0}), ("Greater", ["s", "zero"], ["c"], {})]


@pytest.mark.parametrize("sign", [1, -1])
def test_an_if_of_a_computed_condition_is_a_choice(sign, branches, make_model, run_here, run_there):
    nodes = [*CONDITION, ("If", ["c"], ["y"], branches)]
    model = make_model(nodes, {"x": X.shape}, ["y"], {"zero": np.float32(0)})
    x = sign * np.abs(X)
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"])


@pytest.mark.parametrize("start", [0.3, 2, 50])
def test_a_loop_ends_where_a_computed_condition_says(start, graph, make_model, run_here, run_there):
    """v doubles until its sum is 40; integers are carried too."""
    nodes = [
        ("Add", ["v", "v"], ["next"], {}), ("Add", ["n", "n"], ["more"], {}),
        ("ReduceSum", ["next"], ["s"], {"keepdims": 0}), ("Less", ["s", "most"], ["on"], {}),
    ]  # fmt: skip
    outputs = [("on", 9, []), ("next", 1, None), ("more", 7, None)]
    body = graph(nodes, outputs, [("i", 7, []), ("go", 9, []), ("v", 1, None), ("n", 7, None)])
    loop = [
        ("ReduceSum", ["x"], ["first"], {"keepdims": 0}), ("Less", ["first", "most"], ["c"], {}),
        ("Loop", ["count", "c", "x", "one"], ["y", "n"], {"body": body}),
    ]  # fmt: skip
    constants = {"count": np.array(4), "most": np.float32(40), "one": np.array([1])}
    model = make_model(loop, {"x": X.shape}, ["y", "n"], constants)
    model.graph.output[1].type.tensor_type.elem_type = 7
    x = np.full(X.shape, start, np.float32)
    here, there = run_here(model, {"x": x}), run_there(model, {"x": x})
    for name, expected in there.items():
        np.testing.assert_array_equal(here[name], expected)


@pytest.fixture
def counting(graph):
    """v * 2 + the number of the step, collected before the sum."""
    nodes = [
        ("Cast", ["i"], ["f"], {"to": 1}), ("Add", ["v", "v"], ["double"], {}), ("Add", ["double", "f"], ["next"], {}),
        ("Identity", ["go"], ["on"], {}),
    ]  # fmt: skip
    outputs = [("on", 9, []), ("next", 1, None), ("double", 1, None)]
    return graph(nodes, outputs, [("i", 7, []), ("go", 9, []), ("v", 1, None)])


def test_a_loop_of_a_constant_count_is_unrolled(counting, make_model, run_here, run_there):
    nodes = [("Loop", ["count", "", "x"], ["last", "all"], {"body": counting})]
    model = make_model(nodes, {"x": X.shape}, ["last", "all"], {"count": np.array(3)})
    here, there = run_here(model, {"x": X}), run_there(model, {"x": X})
    for name, expected in there.items():
        np.testing.assert_array_equal(here[name], expected)


def test_a_loop_ends_when_its_condition_does(graph, make_model, run_here, run_there):
    nodes = [("Add", ["v", "v"], ["next"], {}), ("Less", ["i", "two"], ["on"], {})]
    body = graph(nodes, [("on", 9, []), ("next", 1, None)], [("i", 7, []), ("go", 9, []), ("v", 1, None)])
    model = make_model(
        [("Loop", ["", "yes", "x"], ["y"], {"body": body})], {"x": X.shape}, ["y"],
        {"yes": np.array(True), "two": np.array(2)},
    )  # fmt: skip
    np.testing.assert_array_equal(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"])


@pytest.fixture
def summing(graph):
    """A sum of what was scanned so far, and twice what is scanned, of two inputs."""
    nodes = [
        ("Add", ["s", "a"], ["t"], {}), ("Add", ["t", "b"], ["next"], {}), ("Add", ["b", "b"], ["double"], {}),
        ("Identity", ["next"], ["so_far"], {}),
    ]  # fmt: skip
    outputs = [(name, 1, None) for name in ("next", "so_far", "double")]
    return graph(nodes, outputs, [(name, 1, [2]) for name in "sab"])


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"scan_input_axes": [1, -2], "scan_output_axes": [-1, 1]},
        {"scan_input_directions": [1, 0], "scan_output_directions": [0, 1], "scan_input_axes": [1, 0]},
    ],
)
def test_a_scan_is_unrolled(how, summing, make_model, run_here, run_there):
    turned = how.get("scan_input_axes", [0])[0] == 1
    nodes = [
        ("Transpose", ["x"], ["rows"], {"perm": [1, 0]}),
        ("Scan", ["c", "x" if turned else "rows", "rows"], ["y", "all", "twice"],
         {"body": summing, "num_scan_inputs": 2, **how}),
    ]  # fmt: skip
    model = make_model(nodes, {"x": X.shape}, ["y", "all", "twice"], {"c": np.ones(2, np.float32)})
    here, there = run_here(model, {"x": X}), run_there(model, {"x": X})
    for name, expected in there.items():
        np.testing.assert_array_equal(here[name], expected)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"num_scan_inputs": 4}, "3 operands for a body of 3 inputs"),
        ({}, "3 operands for a body of 3 inputs"),
        ({"num_scan_inputs": 2, "scan_input_axes": [0, 1]}, "scanned axes of [2, 3] elements"),
        ({"num_scan_inputs": 2, "scan_input_axes": [0, 2]}, "no axis 2 of 'x' to scan"),
        ({"num_scan_inputs": 2, "scan_output_axes": [0]}, "attribute 'scan_output_axes' does not have 2 whole numbers"),
    ],
)
def test_check_says_why_a_scan_does_not_fit_its_body(how, message, summing, make_model, tmp_path):
    nodes = [("Scan", ["c", "x", "x"], ["y"], {"body": summing, **how})]
    model = make_model(nodes, {"x": X.shape}, ["y"], {"c": np.ones(2, np.float32)})
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    (reason,) = check_onnx(OnnxOptions(model=tmp_path / "net.onnx")).missing["Scan"]
    assert reason.startswith(message)
    with pytest.raises(TcimError, match=r"'n0' \(Scan\): its body does not fit its operands"):
        onnx_bytes(model, "float32")


def test_what_is_not_known_or_never_ends_is_refused_by_name(branches, counting, graph, make_model, monkeypatch):
    taking = graph([("Add", ["s", "a"], ["t"], {})], [("t", 1, None)], [("s", 1, None), ("a", 1, None)])
    monkeypatch.setattr(control, "_MAX_UNROLLED", 100)
    other = {**branches, "else_branch": graph([("Transpose", ["x"], ["r"], {})], [("r", 1, None)])}
    for nodes, constants, message in (
        (
            [*CONDITION, ("If", ["c"], ["y"], other)],
            {"zero": np.float32(0)},
            r"'n2' \(If or Loop\): its condition is computed.* the shapes \[2, 3\] and \[3, 2\]",
        ),
        (
            [*CONDITION, ("Loop", ["many", "c", "x"], ["v", "y"], {"body": counting})],
            {"zero": np.float32(0), "many": np.array(3)},
            r"'n2' \(Loop\).*with nothing to collect",
        ),
        (
            [("Loop", ["", "yes", "x"], ["y", "z"], {"body": counting})],
            {"yes": np.array(True)},
            "there are more than 101 nodes",
        ),
        (
            [("Loop", ["none", "", "x"], ["v", "y"], {"body": counting})],
            {"none": np.array(0)},
            r"'n0' \(Loop\).*or 0 with results to collect",
        ),
        (
            [("Expand", ["x", "many"], ["a"], {}), ("Scan", ["x", "a"], ["y"], {"num_scan_inputs": 1, "body": taking})],
            {"many": np.array([200, 2, 3])},
            "there are more than 102 nodes",
        ),
        ([("If", ["yes"], ["y"], {})], {"yes": np.array(True)}, r"'n0' \(If\)"),
        ([("If", ["text"], ["y"], branches)], {"text": np.array("yes")}, r"'n0' \(If\)"),
        ([("Loop", ["none"], ["v", "y"], {"body": counting})], {"none": np.array(3)}, r"'n0' \(Loop\)"),
    ):
        with pytest.raises(TcimError, match=message):
            onnx_bytes(make_model(nodes, {"x": X.shape}, ["y"], constants), "float32")
