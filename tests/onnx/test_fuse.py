"""Written-out patterns become one op and keep their values; what only looks like one stays as it is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tcim_lite import hmm
from tcim_lite.models.onnx import UnsupportedNodeError, onnx_bytes

RNG = np.random.default_rng(11)
X = {"x": (3, 5, 64)}
UNIT = 2.0**-24


def scalar(value):
    return np.float32(value)


ONE, HALF, ROOT = {"one": scalar(1)}, {"half": scalar(0.5)}, {"root": scalar(2**0.5)}
TANH = ONE | HALF | {"k": scalar(0.7978845608), "c": scalar(0.044715), "three": scalar(3)}


def erf_gate(source="x", root="root"):
    return [
        ("Div", [source, root], ["scaled"], {}),
        ("Erf", ["scaled"], ["erf"], {}),
        ("Add", ["erf", "one"], ["gate"], {}),
    ]


def tanh_gate(constant="k"):
    return [
        ("Pow", ["x", "three"], ["cube"], {}),
        ("Mul", ["cube", "c"], ["small"], {}),
        ("Add", ["x", "small"], ["sum"], {}),
        ("Mul", ["sum", constant], ["inner"], {}),
        ("Tanh", ["inner"], ["tanh"], {}),
        ("Add", ["one", "tanh"], ["gate"], {}),
    ]


# The orders of factors that exporters write: name -> nodes, constants, the one op.
FUNCTIONS = {
    "gelu of torch's TorchScript exporter": (
        [*erf_gate(), ("Mul", ["x", "gate"], ["both"], {}), ("Mul", ["both", "half"], ["y"], {})],
        ONE | HALF | ROOT,
        "Gelu",
    ),
    "gelu of torch's newer exporter": (
        [*erf_gate(), ("Mul", ["half", "gate"], ["h"], {}), ("Mul", ["x", "h"], ["y"], {})],
        ONE | HALF | ROOT,
        "Gelu",
    ),
    "gelu with halved x": (
        [
            ("Mul", ["x", "half"], ["h"], {}),
            ("Mul", ["x", "inverse"], ["s"], {}),
            ("Erf", ["s"], ["erf"], {}),
            ("Add", ["one", "erf"], ["gate"], {}),
            ("Mul", ["gate", "h"], ["y"], {}),
        ],
        ONE | HALF | {"inverse": scalar(0.5**0.5)},
        "Gelu",
    ),
    "gelu with tanh and a power": (
        [*tanh_gate(), ("Mul", ["half", "x"], ["h"], {}), ("Mul", ["h", "gate"], ["y"], {})],
        TANH,
        "GeluTanh",
    ),
    "gelu with tanh and products": (
        [
            ("Mul", ["x", "x"], ["xx"], {}),
            ("Mul", ["c", "xx"], ["cxx"], {}),
            ("Add", ["cxx", "one"], ["sum"], {}),
            ("Mul", ["x", "k"], ["kx"], {}),
            ("Mul", ["kx", "sum"], ["inner"], {}),
            ("Tanh", ["inner"], ["tanh"], {}),
            ("Add", ["tanh", "one"], ["gate"], {}),
            ("Mul", ["gate", "half"], ["h"], {}),
            ("Mul", ["x", "h"], ["y"], {}),
        ],
        TANH,
        "GeluTanh",
    ),
    "silu": ([("Sigmoid", ["x"], ["s"], {}), ("Mul", ["s", "x"], ["y"], {})], {}, "Silu"),
    "silu as a quotient": (
        [
            ("Neg", ["x"], ["n"], {}),
            ("Exp", ["n"], ["e"], {}),
            ("Add", ["e", "one"], ["d"], {}),
            ("Div", ["x", "d"], ["y"], {}),
        ],
        ONE,
        "Silu",
    ),
    "hard swish with HardSigmoid": (
        [("HardSigmoid", ["x"], ["h"], {"alpha": 1 / 6, "beta": 0.5}), ("Mul", ["x", "h"], ["y"], {})],
        {},
        "HardSwish",
    ),
    "hard swish with Clip": (
        [
            ("Add", ["x", "three"], ["p"], {}),
            ("Clip", ["p", "zero", "six"], ["q"], {}),
            ("Mul", ["x", "q"], ["r"], {}),
            ("Div", ["r", "six"], ["y"], {}),
        ],
        {"three": scalar(3), "zero": scalar(0), "six": scalar(6)},
        "HardSwish",
    ),
}


def variance(x="x", axes=(-1,), keepdims=1, square="Pow"):
    """sqrt(mean(x^2) + epsilon)."""
    return [
        ("Pow", [x, "two"], ["square"], {}) if square == "Pow" else ("Mul", [x, x], ["square"], {}),
        ("ReduceMean", ["square"], ["mean square"], {"axes": list(axes), "keepdims": keepdims}),
        ("Add", ["mean square", "epsilon"], ["sum"], {}),
        ("Sqrt", ["sum"], ["root"], {}),
    ]


def centred(axes=(-1,)):
    return [("ReduceMean", ["x"], ["mean"], {"axes": list(axes)}), ("Sub", ["x", "mean"], ["d"], {})]


NUMBERS = {"two": scalar(2), "epsilon": scalar(1e-5), "one": scalar(1)}
WEIGHT, BIAS = RNG.uniform(0.5, 2, 64).astype(np.float32), RNG.standard_normal(64).astype(np.float32)
AFFINE = [("Mul", ["w", "n"], ["wn"], {}), ("Add", ["wn", "b"], ["y"], {})]
INVERSE = [("Reciprocal", ["root"], ["inverse"], {})]
SHIFTED = [
    *centred(),
    *variance("d", square="Mul"),
    *INVERSE,
    ("Mul", ["inverse", "w"], ["g"], {}),
    ("Mul", ["x", "g"], ["xg"], {}),
    ("Mul", ["mean", "g"], ["mg"], {}),
    ("Sub", ["b", "mg"], ["rest"], {}),
    ("Add", ["xg", "rest"], ["y"], {}),
]

NORMS = {
    "layer norm of torch's exporter below opset 17": (
        [*centred(), *variance("d"), ("Div", ["d", "root"], ["n"], {}), *AFFINE],
        {"w": WEIGHT, "b": BIAS},
        "LayerNorm",
    ),
    "layer norm over axis 2 by a reciprocal, without weights": (
        [*centred((2,)), *variance("d", (2,), square="Mul"), *INVERSE, ("Mul", ["inverse", "d"], ["y"], {})],
        {},
        "LayerNorm",
    ),
    "layer norm over two axes": (
        [*centred((1, 2)), *variance("d", (-1, -2)), ("Div", ["d", "root"], ["n"], {}), *AFFINE],
        {"w": np.tile(WEIGHT, (5, 1)), "b": np.tile(BIAS, (1, 5, 1))},
        "LayerNorm",
    ),
    "layer norm whose difference is written twice": (
        [
            *centred(),
            ("Sub", ["x", "mean"], ["d2"], {}),
            *variance("d2"),
            ("Div", ["d", "root"], ["n"], {}),
            *AFFINE,
        ],
        {"w": WEIGHT, "b": BIAS},
        "LayerNorm",
    ),
    "layer norm as TensorFlow writes it": (
        SHIFTED,
        {"w": WEIGHT, "b": BIAS},
        "LayerNorm",
    ),
    "rms norm of torch's exporter": (
        [
            *variance(),
            ("Div", ["one", "root"], ["inverse"], {}),
            ("Mul", ["x", "inverse"], ["n"], {}),
            ("Mul", ["w", "n"], ["y"], {}),
        ],
        {"w": WEIGHT},
        "RMSNorm",
    ),
    "rms norm as a quotient": (
        [*variance(square="Mul"), ("Div", ["x", "root"], ["n"], {}), ("Mul", ["n", "w"], ["y"], {})],
        {"w": WEIGHT},
        "RMSNorm",
    ),
}


def ops_of(model, tmp_path):
    path = tmp_path / "net.hmm"
    path.write_bytes(onnx_bytes(model, "float32"))
    return Counter(op.kind for op in hmm.read(path).graphs[0].ops if op.kind != "Reshape")


@pytest.mark.parametrize("form", FUNCTIONS)
def test_a_written_out_function_becomes_one_op(form, make_model, run_here, run_there, tmp_path):
    """Erf's bound of numerics.md, 4e-7 for each unit of x, is the widest here; both sides have one."""
    nodes, constants, op = FUNCTIONS[form]
    model = make_model(nodes, X, ["y"], constants)
    assert ops_of(model, tmp_path) == {op: 1}
    x = (4 * RNG.standard_normal(X["x"])).astype(np.float32)
    got, wanted = run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"]
    assert (np.abs(got - wanted) <= 8e-7 * np.maximum(1, np.abs(x))).all()


@pytest.mark.parametrize("form", NORMS)
def test_a_written_out_norm_becomes_one_op(form, make_model, run_here, run_there, tmp_path):
    """Two sums of n terms on each side, and a square root: 8 sqrt(n) roundings of a result, and those of the mean."""
    nodes, constants, op = NORMS[form]
    model = make_model(nodes, X, ["y"], NUMBERS | constants)
    assert ops_of(model, tmp_path) == {op: 1}
    x = (3 + 2 * RNG.standard_normal(X["x"])).astype(np.float32)
    got, wanted = run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"]
    columns = 5 * 64 if "two axes" in form else 64
    np.testing.assert_allclose(got, wanted, rtol=0, atol=8 * np.sqrt(columns) * UNIT * np.abs(x).max() * 2)


GELU, RMS = FUNCTIONS["gelu of torch's TorchScript exporter"], NORMS["rms norm as a quotient"]
MISSES = {
    "gelu with another root": (GELU[0], GELU[1] | {"root": scalar(1.4142)}, ["y"], "Gelu"),
    "gelu with another half": (GELU[0], GELU[1] | {"half": scalar(0.25)}, ["y"], "Gelu"),
    "gelu with another one": (GELU[0], GELU[1] | {"one": scalar(1.001)}, ["y"], "Gelu"),
    "gelu whose erf has another reader": ([*GELU[0], ("Neg", ["erf"], ["z"], {})], GELU[1], ["y", "z"], "Gelu"),
    "gelu whose gate is an output": (GELU[0], GELU[1], ["y", "gate"], "Gelu"),
    "gelu of another value": (
        [("Tanh", ["x"], ["t"], {}), *erf_gate("t"), *GELU[0][3:]],
        GELU[1],
        ["y"],
        "Gelu",
    ),
    "tanh gelu with another constant": (
        FUNCTIONS["gelu with tanh and a power"][0],
        TANH | {"c": scalar(0.0447)},
        ["y"],
        "GeluTanh",
    ),
    "tanh gelu with another power": (
        FUNCTIONS["gelu with tanh and a power"][0],
        TANH | {"three": scalar(2)},
        ["y"],
        "GeluTanh",
    ),
    "silu of another value": (
        [("Tanh", ["x"], ["t"], {}), ("Sigmoid", ["t"], ["s"], {}), ("Mul", ["s", "x"], ["y"], {})],
        {},
        ["y"],
        "Silu",
    ),
    "silu whose gate is an output": (FUNCTIONS["silu"][0], {}, ["y", "s"], "Silu"),
    "hard swish with the default HardSigmoid": (
        [("HardSigmoid", ["x"], ["h"], {}), ("Mul", ["x", "h"], ["y"], {})],
        {},
        ["y"],
        "HardSwish",
    ),
    "hard swish that is clipped elsewhere": (
        FUNCTIONS["hard swish with Clip"][0],
        FUNCTIONS["hard swish with Clip"][1] | {"three": scalar(2)},
        ["y"],
        "HardSwish",
    ),
    "rms norm over the first axis": (
        [*variance(axes=(0,)), *RMS[0][4:]],
        NUMBERS | {"w": WEIGHT},
        ["y"],
        "RMSNorm",
    ),
    "rms norm with epsilon outside the root": (
        [
            *variance(square="Mul")[:2],
            ("Sqrt", ["mean square"], ["r"], {}),
            ("Add", ["r", "epsilon"], ["root"], {}),
            *RMS[0][4:],
        ],
        NUMBERS | {"w": WEIGHT},
        ["y"],
        "RMSNorm",
    ),
    "rms norm with a fourth power": (
        [*variance(), *RMS[0][4:]],
        NUMBERS | {"w": WEIGHT, "two": scalar(4)},
        ["y"],
        "RMSNorm",
    ),
    "norm whose deviation is an output": (
        NORMS["layer norm of torch's exporter below opset 17"][0],
        NUMBERS | {"w": WEIGHT, "b": BIAS},
        ["y", "root"],
        "LayerNorm",
    ),
    "layer norm of TensorFlow whose mean is an output": (
        SHIFTED,
        NUMBERS | {"w": WEIGHT, "b": BIAS},
        ["y", "mean"],
        "LayerNorm",
    ),
    "layer norm of TensorFlow whose bias is no vector of the norm": (
        SHIFTED,
        NUMBERS | {"w": WEIGHT, "b": BIAS[:5].reshape(5, 1)},
        ["y"],
        "LayerNorm",
    ),
    "layer norm of means over another axis": (
        [*centred((1,)), *variance("d"), ("Div", ["d", "root"], ["n"], {}), *AFFINE],
        NUMBERS | {"w": WEIGHT, "b": BIAS},
        ["y"],
        "LayerNorm",
    ),
}


@pytest.mark.parametrize("form", MISSES)
def test_what_is_not_the_pattern_keeps_its_values(form, make_model, run_here, run_there, tmp_path):
    nodes, constants, outputs, op = MISSES[form]
    model = make_model(nodes, X, outputs, constants)
    assert ops_of(model, tmp_path)[op] == 0
    x = RNG.standard_normal(X["x"]).astype(np.float32)
    got, wanted = run_here(model, {"x": x}), run_there(model, {"x": x})
    for name in outputs:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-5, atol=2e-6 * np.abs(wanted[name]).max())


def test_a_scale_that_is_no_vector_of_the_norm_stays_a_product(make_model, run_here, run_there, tmp_path):
    nodes = [*variance(), *RMS[0][4:]]
    model = make_model(nodes, X, ["y"], NUMBERS | {"w": RNG.standard_normal((5, 1)).astype(np.float32)})
    assert ops_of(model, tmp_path) == {"RMSNorm": 1, "Mul": 1}
    x = RNG.standard_normal(X["x"]).astype(np.float32)
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "nodes",
    [
        [("Transpose", ["x"], ["a"], {"perm": "ab"}), ("Transpose", ["a"], ["y"], {})],
        [*centred(), ("Mul", ["d", "d"], ["q"], {}), ("ReduceMean", ["q"], ["m2"], {"axes": "ab"}),
         ("Add", ["m2", "epsilon"], ["s"], {}), ("Sqrt", ["s"], ["r"], {}), ("Div", ["d", "r"], ["y"], {})],
        [("HardSigmoid", ["x"], ["h"], {"alpha": "ab"}), ("Mul", ["x", "h"], ["y"], {})],
    ],
)  # fmt: skip
def test_attributes_that_make_no_sense_are_refused_by_node(nodes, make_model):
    with pytest.raises(UnsupportedNodeError, match="node 'n"):
        onnx_bytes(make_model(nodes, X, ["y"], NUMBERS))
