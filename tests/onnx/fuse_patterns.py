"""Functions and norms that exporters write out in small ops: nodes, constants, and the op that they become."""

from __future__ import annotations

import numpy as np

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
