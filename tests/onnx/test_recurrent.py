"""LSTM, GRU and RNN against onnxruntime, and an OCR network with one."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(8)
STEPS, BATCH, INPUTS, HIDDEN = 7, 3, 5, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENGTHS = np.array([7, 2, 5], np.int32)


def numbers(*shape, spread=0.5):
    return RNG.uniform(-spread, spread, shape).astype(np.float32)


def layer(op, directions=1, bias=True, lengths=None, states=0, peepholes=False, **attributes):
    """Nodes, constants and the shapes of further inputs of one layer over "x", with all its outputs."""
    rows = GATES[op] * HIDDEN
    constants = {"w": numbers(directions, rows, INPUTS), "r": numbers(directions, rows, HIDDEN)}
    if bias:
        constants["b"] = numbers(directions, 2 * rows)
    if lengths is not None:
        constants["lengths"] = lengths
    given = ["h", "c"][:states]
    operands = ["x", "w", "r", "b" if bias else "", "lengths" if lengths is not None else "", *given]
    if peepholes:
        constants["p"] = numbers(directions, 3 * HIDDEN)
        operands = [*operands, *[""] * (7 - len(operands)), "p"]
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    if directions == 2:
        attributes["direction"] = "bidirectional"
    node = (op, operands, outputs, {"hidden_size": HIDDEN, **attributes})
    return node, constants, {name: (directions, BATCH, HIDDEN) for name in given}, outputs


CASES = {
    f"{op} {name}": (op, options)
    for op in GATES
    for name, options in {
        "forward": {},
        "reverse without bias": {"direction": "reverse", "bias": False},
        "both ways from states": {"directions": 2, "states": 2 if op == "LSTM" else 1},
        "both ways of some length": {"directions": 2, "lengths": LENGTHS, "states": 2 if op == "LSTM" else 1},
    }.items()
} | {
    "GRU that resets behind the product": ("GRU", {"directions": 2, "linear_before_reset": 1}),
    "RNN with Relu": ("RNN", {"directions": 2, "activations": ["Relu", "Tanh"]}),
    "LSTM with peepholes": ("LSTM", {"directions": 2, "peepholes": True}),
    "LSTM with coupled gates": ("LSTM", {"input_forget": 1, "states": 2, "peepholes": True}),
    **{f"{op} of clipped sums": (op, {"clip": 0.4, "directions": 2}) for op in GATES},
    "LSTM with HardSigmoid": ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Relu"]}),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnxruntime(name, make_model, run_here, run_there):
    op, options = CASES[name]
    node, constants, inputs, outputs = layer(op, **options)
    model = make_model([node], {"x": (STEPS, BATCH, INPUTS), **inputs}, outputs, constants)
    feeds = {"x": numbers(STEPS, BATCH, INPUTS, spread=2)} | {name: numbers(*shape) for name, shape in inputs.items()}
    here, there = run_here(model, feeds), run_there(model, feeds)
    for output in outputs:
        np.testing.assert_allclose(here[output], there[output], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("quant", ["float16", "w8a8h1_sefp"])
def test_other_types_stay_near(quant, make_model, run_here, run_there):
    node, constants, _, _ = layer("LSTM", directions=2)
    model = make_model([node], {"x": (STEPS, BATCH, INPUTS)}, ["y"], constants)
    feeds = {"x": numbers(STEPS, BATCH, INPUTS, spread=2)}
    here, there = run_here(model, feeds, quant)["y"], run_there(model, feeds)["y"]
    np.testing.assert_allclose(here, there, atol=2e-3 if quant == "float16" else 3e-2)


def test_text_recognition(make_model, run_here, run_there):
    """What exporters make of a CRNN: columns of an image through convolutions, two BiLSTMs and a classifier."""
    channels, hidden, letters = 16, 12, 11
    constants = {"k1": numbers(8, 1, 3, 3), "k2": numbers(channels, 8, 3, 3), "fold": np.array([0, 0, -1])}
    for i, inputs in enumerate((channels, 2 * hidden)):
        constants[f"w{i}"] = numbers(2, 4 * hidden, inputs)
        constants[f"r{i}"] = numbers(2, 4 * hidden, hidden)
        constants[f"b{i}"] = numbers(2, 8 * hidden)
    constants |= {"wo": numbers(2 * hidden, letters), "bo": numbers(letters)}
    way = {"direction": "bidirectional", "hidden_size": hidden}
    nodes = [
        ("Conv", ["x", "k1"], ["c1"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c1"], ["a1"], {}),
        ("MaxPool", ["a1"], ["p1"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Conv", ["p1", "k2"], ["c2"], {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ("Relu", ["c2"], ["a2"], {}),
        ("ReduceMean", ["a2"], ["row"], {"axes": [2], "keepdims": 0}),  # [N, C, W]
        ("Transpose", ["row"], ["s0"], {"perm": [2, 0, 1]}),
        ("LSTM", ["s0", "w0", "r0", "b0"], ["y0", "h0", "n0"], way),
        ("Transpose", ["y0"], ["t0"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["t0", "fold"], ["s1"], {}),
        ("LSTM", ["s1", "w1", "r1", "b1"], ["y1", "", ""], way),
        ("Transpose", ["y1"], ["t1"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["t1", "fold"], ["s2"], {}),
        ("MatMul", ["s2", "wo"], ["m"], {}),
        ("Add", ["m", "bo"], ["logits"], {}),
        ("LogSoftmax", ["logits"], ["y"], {"axis": 2}),
    ]
    model = make_model(nodes, {"x": (2, 1, 8, 40)}, ["y"], constants)
    feeds = {"x": numbers(2, 1, 8, 40, spread=2)}
    here, there = run_here(model, feeds)["y"], run_there(model, feeds)["y"]
    assert here.shape == (20, 2, letters)
    np.testing.assert_allclose(here, there, rtol=2e-5, atol=2e-5)


REFUSED = {
    "clip is -3.0, expected": {"clip": -3.0},
    "activation 'Affine'": {"activations": ["Affine", "Tanh", "Tanh"]},
    "2 activations": {"activations": ["Sigmoid", "Tanh"]},
    "attribute 'activation_alpha'": {"activation_alpha": [0.5]},
    "direction 'sideways'": {"direction": "sideways"},
    "hidden_size 7 for weights of 6": {"hidden_size": 7},
    "2 sequence_lens for 3 sequences": {"lengths": LENGTHS[:2]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_supported_is_refused_by_name(message, make_model):
    node, constants, _, outputs = layer("LSTM", **REFUSED[message])
    model = make_model([node], {"x": (STEPS, BATCH, INPUTS)}, outputs, constants)
    with pytest.raises(TcimError, match=rf"node 'n0' \(LSTM\): .*{message}"):
        onnx_bytes(model, "float32")


def test_more_steps_than_a_package_holds_are_refused(make_model):
    node, constants, _, outputs = layer("LSTM")
    model = make_model([node], {"x": (10_000, 1, INPUTS)}, outputs, constants)
    with pytest.raises(TcimError, match="with its 10000 steps in 1 directions"):
        onnx_bytes(model, "float32")
