"""Attention written out: scales become part of weights where nobody else reads them, transposes become fewer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tcim_lite import hmm
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(13)
TOKENS, HEADS, WIDTH = 9, 2, 64
X = {"x": (1, TOKENS, WIDTH)}


def matrix(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


CONSTANTS = {
    **{f"w{name}": matrix(WIDTH, WIDTH) for name in "qkvo"},
    **{f"b{name}": matrix(WIDTH) for name in "qkvo"},
    "wqkv": matrix(WIDTH, 3 * WIDTH),
    "bqkv": matrix(3 * WIDTH),
    "heads": np.array([1, TOKENS, HEADS, -1], np.int64),
    "parts": np.array([1, TOKENS, 3, HEADS, -1], np.int64),
    "ones": np.ones(3, np.int64),
    "first": np.array([0], np.int64),
    "rows": np.array([TOKENS, WIDTH], np.int64),
    "joined": np.array([1, TOKENS, WIDTH], np.int64),
    "scale": np.float32((WIDTH // HEADS) ** -0.5),
    "divisor": np.float32((WIDTH // HEADS) ** 0.5),
    "root": np.float32((WIDTH // HEADS) ** -0.25),
    "mask": np.where(np.tri(TOKENS) > 0, 0, -1e4).astype(np.float32)[None, None],
}


def linear(x, name, out):
    return [
        ("MatMul", [x, f"w{name}"], [f"{out}/p"], {}),
        ("Add", [f"{out}/p", f"b{name}"], [out], {}),
    ]


def head(name, perm=(0, 2, 1, 3)):
    """A Linear, cut into heads."""
    return [
        *linear("x", name, f"{name}/l"),
        ("Reshape", [f"{name}/l", "heads"], [f"{name}/h"], {}),
        ("Transpose", [f"{name}/h"], [name], {"perm": list(perm)}),
    ]


def turned(source="k", out="kt"):
    return [("Transpose", [source], [out], {"perm": [0, 1, 3, 2]})]


def mixed(scores):
    """Softmax of the scores, times v, through the last Linear."""
    return [
        ("Softmax", [scores], ["p"], {"axis": -1}),
        ("MatMul", ["p", "v"], ["m"], {}),
        ("Transpose", ["m"], ["t"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["t", "joined"], ["j"], {}),
        *linear("j", "o", "y"),
    ]


TOGETHER = [
    *linear("x", "qkv", "all"),
    ("Reshape", ["all", "parts"], ["r"], {}),
    ("Transpose", ["r"], ["five"], {"perm": [2, 0, 3, 1, 4]}),
    ("Split", ["five", "ones"], ["q5", "k5", "v5"], {"axis": 0}),
    *(("Squeeze", [f"{name}5", "first"], [name], {}) for name in "qkv"),
]
SCORES = ("MatMul", ["q", "kt"], ["s"], {})

# name -> nodes, Transposes that are left
SCALED = {
    "scores are multiplied": (
        [*head("q"), *head("k"), *head("v"), *turned(), SCORES, ("Mul", ["s", "scale"], ["a"], {}), *mixed("a")],
        4,
    ),
    "scores are divided and masked": (
        [
            *head("q"),
            *head("k"),
            *head("v"),
            *turned(),
            SCORES,
            ("Div", ["s", "divisor"], ["a"], {}),
            ("Add", ["a", "mask"], ["masked"], {}),
            *mixed("masked"),
        ],
        4,
    ),
    "q and k have the root of the scale": (
        [
            *head("q"),
            *head("k"),
            *head("v"),
            ("Mul", ["q", "root"], ["qs"], {}),
            *turned(),
            ("Mul", ["kt", "root"], ["ks"], {}),
            ("MatMul", ["qs", "ks"], ["a"], {}),
            *mixed("a"),
        ],
        4,
    ),
    "q, k and v are one Linear": (
        [*TOGETHER, *turned(), SCORES, ("Mul", ["s", "scale"], ["a"], {}), *mixed("a")],
        3,
    ),
    "k has a scale between its transposes": (
        [
            *head("q"),
            *head("k"),
            *head("v"),
            ("Mul", ["k", "scale"], ["ks"], {}),
            *turned("ks"),
            ("MatMul", ["q", "kt"], ["a"], {}),
            *mixed("a"),
        ],
        4,
    ),
}


def ops_of(model, tmp_path, quant="float32"):
    path = tmp_path / "net.hmm"
    path.write_bytes(onnx_bytes(model, quant))
    return Counter(op.kind for op in hmm.read(path).graphs[0].ops if op.kind != "Reshape")


def check_values(model, run_here, run_there, outputs=("y",)):
    """Five products of at most 64 terms follow each other: 5 sqrt(64) roundings on each side, all values near 1."""
    x = RNG.standard_normal(X["x"]).astype(np.float32)
    got, wanted = run_here(model, {"x": x}), run_there(model, {"x": x})
    for name in outputs:
        bound = 2 * 5 * 8 * 2**-24 * max(1.0, float(np.abs(wanted[name]).max()))
        np.testing.assert_allclose(got[name], wanted[name], rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("form", SCALED)
def test_a_scale_of_attention_becomes_part_of_weights(form, make_model, run_here, run_there, tmp_path):
    nodes, transposes = SCALED[form]
    model = make_model(nodes, X, ["y"], CONSTANTS)
    ops = ops_of(model, tmp_path)
    assert ops["Mul"] == ops["Div"] == 0
    assert (ops["MatMul"], ops["Softmax"], ops["Transpose"]) == (2, 1, transposes)
    check_values(model, run_here, run_there)


@pytest.mark.parametrize("quant", ["float16", "w8a8h1_sefp"])
def test_a_scale_in_quantised_weights_costs_no_accuracy(quant, make_model, run_here, run_there):
    model = make_model(SCALED["scores are multiplied"][0], X, ["y"], CONSTANTS)
    x = RNG.standard_normal(X["x"]).astype(np.float32)
    a, b = (run({"x": x}) for run in (lambda f: run_here(model, f, quant)["y"], lambda f: run_there(model, f)["y"]))
    cosine = float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))
    assert cosine > {"float16": 0.999999, "w8a8h1_sefp": 0.999}[quant]


PLAIN = SCALED["scores are multiplied"][0]
KEPT = {
    "q and k are outputs": (PLAIN, ["y", "q", "k"], {}),
    "the scores are an output": (PLAIN, ["y", "s"], {}),
    "q and k have other readers": (
        [*PLAIN, ("Add", ["q", "k"], ["z"], {})],
        ["y", "z"],
        {},
    ),
    "all of one Linear has another reader": (
        [*TOGETHER, *turned(), SCORES, ("Mul", ["s", "scale"], ["a"], {}), *mixed("a"), ("Neg", ["five"], ["z"], {})],
        ["y", "z"],
        {},
    ),
    "the factor differs within a column": (
        [
            *head("q"),
            *head("k"),
            *head("v"),
            ("Mul", ["q", "by token"], ["qs"], {}),
            *turned(),
            ("MatMul", ["qs", "kt"], ["a"], {}),
            *mixed("a"),
        ],
        ["y"],
        {"by token": np.linspace(0.5, 1, TOKENS, dtype=np.float32).reshape(TOKENS, 1)},
    ),
    "other rows of the Linear are an output": (
        [
            *linear("x", "q", "l"),
            ("Split", ["l", "four and five"], ["some", "rest"], {"axis": 1}),
            ("Mul", ["some", "scale"], ["y"], {}),
        ],
        ["y", "rest"],
        {"four and five": np.array([4, 5])},
    ),
    "the factor is too small for float16 weights": (PLAIN, ["y"], {"scale": np.float32(2e-5)}),
    "the factor widens the value": (
        [*linear("x", "q", "l"), ("Mul", ["l", "two rows"], ["y"], {})],
        ["y"],
        {"two rows": np.full((2, 1, 1), 0.5, np.float32)},
    ),
}


@pytest.mark.parametrize("form", KEPT)
def test_a_factor_that_is_not_of_columns_alone_stays(form, make_model, run_here, run_there, tmp_path):
    nodes, outputs, more = KEPT[form]
    model = make_model(nodes, X, outputs, CONSTANTS | more)
    assert ops_of(model, tmp_path)["Mul"] == 1
    check_values(model, run_here, run_there, outputs)


def test_the_constant_that_ends_a_block_of_convnext_becomes_part_of_weights(make_model, run_here, run_there, tmp_path):
    """One factor for each channel, behind the Transpose that puts channels first again."""
    nodes = [
        *linear("x", "q", "l"),
        ("Transpose", ["l"], ["t"], {"perm": [0, 2, 1]}),
        ("Mul", ["by channel", "t"], ["y"], {}),
    ]
    constants = CONSTANTS | {"by channel": RNG.uniform(0.5, 2, (WIDTH, 1)).astype(np.float32)}
    model = make_model(nodes, X, ["y"], constants)
    assert ops_of(model, tmp_path) == {"Linear": 1, "Transpose": 1}
    check_values(model, run_here, run_there)


def test_transposes_that_follow_each_other_become_one(make_model, run_here, run_there, tmp_path):
    nodes = [
        ("Transpose", ["x"], ["a"], {}),
        ("Identity", ["a"], ["b"], {}),
        ("Transpose", ["b"], ["c"], {"perm": [1, 2, 0]}),
        ("Neg", ["c"], ["y"], {}),
    ]
    model = make_model(nodes, {"x": (2, 3, 4)}, ["y"])
    assert ops_of(model, tmp_path) == {"Transpose": 1, "Neg": 1}
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"])
    kept = make_model([*nodes, ("Abs", ["b"], ["z"], {})], {"x": (2, 3, 4)}, ["y", "z"])
    assert ops_of(kept, tmp_path)["Transpose"] == 2


def test_nodes_that_change_nothing_and_second_ones_go(make_model, run_here, run_there, tmp_path):
    nodes = [
        ("Identity", ["x"], ["a"], {}),
        ("Dropout", ["a"], ["b"], {}),
        ("Exp", ["b"], ["e1"], {}),
        ("Exp", ["x"], ["e2"], {}),
        ("Add", ["e1", "e2"], ["y"], {}),
        ("Identity", ["e2"], ["z"], {}),
    ]
    model = make_model(nodes, {"x": (2, 3)}, ["y", "z"])
    assert ops_of(model, tmp_path) == {"Exp": 1, "Add": 1}
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    got, wanted = run_here(model, {"x": x}), run_there(model, {"x": x})
    for name in ("y", "z"):
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-6)


QUICK = [
    *linear("x", "q", "l"),
    ("Mul", ["l", "c"], ["cl"], {}),
    ("Sigmoid", ["cl"], ["g"], {}),
    ("Mul", ["l", "g"], ["a"], {}),
    *linear("a", "k", "y"),
]


def test_clip_s_activation_between_two_linears_is_a_silu(make_model, run_here, run_there, tmp_path):
    model = make_model(QUICK, X, ["y"], CONSTANTS | {"c": np.float32(1.702)})
    assert ops_of(model, tmp_path) == {"Linear": 2, "Silu": 1}
    check_values(model, run_here, run_there)


@pytest.mark.parametrize(
    ("more", "outputs", "c"),
    [
        ([("Neg", ["l"], ["z"], {})], ["y", "z"], 1.702),
        ([("Neg", ["a"], ["z"], {})], ["y", "z"], 1.702),
        ([], ["y", "a"], 1.702),
        ([], ["y", "l"], 1.702),
        ([], ["y", "g"], 1.702),
        ([], ["y"], 16.0),
    ],
)
def test_clip_s_activation_stays_where_others_read_its_values(
    more, outputs, c, make_model, run_here, run_there, tmp_path
):
    model = make_model([*QUICK, *more], X, outputs, CONSTANTS | {"c": np.float32(c)})
    ops = ops_of(model, tmp_path)
    assert (ops["Silu"], ops["Sigmoid"], ops["Mul"]) == (0, 1, 2)
    check_values(model, run_here, run_there, outputs)
