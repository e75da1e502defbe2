"""Operands of a Concat are computed where the result has them, if they can be; the result is the same in any case."""

from __future__ import annotations

import numpy as np
import pytest

X = (1, 16, 8, 8)


def relu(x, y):
    return ("Relu", [x], [y], {})


def concat(inputs, y, axis=1):
    return ("Concat", inputs, [y], {"axis": axis})


# Nodes, inputs, outputs.
CASES = {
    "two": ([relu("x", "a"), relu("z", "b"), concat(["a", "b"], "y")], {"x": X, "z": X}, ["y"]),
    "one within the next": (
        [
            relu("x", "a"),
            relu("z", "b"),
            concat(["a", "b"], "c"),
            relu("c", "d"),
            concat(["c", "d"], "e"),
            relu("e", "f"),
            concat(["e", "f", "z"], "g"),
            ("Neg", ["g"], ["y"], {}),
        ],
        {"x": X, "z": X},
        ["y"],
    ),
    "behind": (
        [relu("x", "a"), concat(["z", "a"], "b"), concat(["x", "b"], "c"), relu("c", "y")],
        {"x": X, "z": X},
        ["y"],
    ),
    "twice in one": ([relu("x", "a"), concat(["a", "a"], "b"), ("Neg", ["b"], ["y"], {})], {"x": X}, ["y"]),
    "in two": (
        [
            relu("x", "a"),
            relu("z", "b"),
            concat(["a", "b"], "c"),
            concat(["b", "a"], "d"),
            ("Add", ["c", "d"], ["y"], {}),
        ],
        {"x": X, "z": X},
        ["y"],
    ),
    "read before and behind": (
        [
            relu("x", "a"),
            ("Neg", ["a"], ["b"], {}),
            concat(["b", "a"], "c"),
            ("Neg", ["c"], ["d"], {}),
            concat(["a", "b"], "e"),
            ("Add", ["d", "e"], ["y"], {}),
        ],
        {"x": X},
        ["y"],
    ),
    "an output": (
        [relu("x", "a"), relu("z", "b"), concat(["a", "b"], "c"), relu("c", "y")],
        {"x": X, "z": X},
        ["y", "a"],
    ),
    "lines that are not whole": (
        [relu("x", "a"), relu("z", "b"), concat(["a", "b", "a"], "c"), ("Neg", ["c"], ["y"], {})],
        {"x": (1, 3, 3, 3), "z": (1, 16, 3, 3)},
        ["y"],
    ),
    "two images": (
        [relu("x", "a"), relu("z", "b"), concat(["a", "b"], "c"), relu("c", "y")],
        {"x": (2, 16, 8, 8), "z": (2, 16, 8, 8)},
        ["y"],
    ),
    "the last axis": (
        [relu("x", "a"), relu("z", "b"), concat(["a", "b"], "c", 3), relu("c", "y")],
        {"x": X, "z": X},
        ["y"],
    ),
    "views": (
        [
            relu("x", "a"),
            ("Reshape", ["a", "shape"], ["b"], {}),
            relu("z", "d"),
            concat(["b", "d"], "c", 0),
            ("Neg", ["c"], ["y"], {}),
        ],
        {"x": X, "z": (16, 64)},
        ["y"],
    ),
    "integers": (
        [
            ("Cast", ["x"], ["a"], {"to": 6}),
            ("Cast", ["z"], ["b"], {"to": 6}),
            concat(["a", "b"], "c"),
            ("Add", ["c", "c"], ["d"], {}),
            ("Cast", ["d"], ["y"], {"to": 1}),
        ],
        {"x": X, "z": X},
        ["y"],
    ),
}


def expected(nodes, feeds):
    values = dict(feeds) | {"shape": np.array([16, 64])}
    for op, inputs, outputs, attributes in nodes:
        x = [values[name] for name in inputs]
        values[outputs[0]] = {
            "Relu": lambda x=x: np.maximum(x[0], 0),
            "Neg": lambda x=x: -x[0],
            "Add": lambda x=x: x[0] + x[1],
            "Concat": lambda x=x, a=attributes: np.concatenate(x, a["axis"]),
            "Reshape": lambda x=x: x[0].reshape(x[1]),
            "Cast": lambda x=x, a=attributes: x[0].astype(np.int32 if a["to"] == 6 else np.float32),
        }[op]()
    return values["y"]


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_operands_are_where_the_result_has_them(make_model, run_steps, name, quant):
    nodes, shapes, outputs = CASES[name]
    rng = np.random.default_rng(5)
    feeds = {name: rng.integers(-9, 10, shape).astype(np.float32) for name, shape in shapes.items()}
    model = make_model(nodes, shapes, outputs, {"shape": np.array([16, 64])} if name == "views" else {})
    found, _ = run_steps(model, feeds, quant)
    np.testing.assert_array_equal(found, expected(nodes, feeds))
