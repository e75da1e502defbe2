"""Written-out patterns become one op and keep their values; what only looks like one stays as it is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from fuse_patterns import (
    AFFINE,
    BIAS,
    FUNCTIONS,
    NORMS,
    NUMBERS,
    RNG,
    SHIFTED,
    TANH,
    UNIT,
    WEIGHT,
    X,
    centred,
    erf_gate,
    scalar,
    variance,
)

from tcim_lite import hmm
from tcim_lite.models.onnx import UnsupportedNodeError, onnx_bytes


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
