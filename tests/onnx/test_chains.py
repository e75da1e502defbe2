"""Elementwise ops behind one whose operands repeat are one step with it, with the bits of steps of their own."""

from __future__ import annotations

import numpy as np
import pytest

X = (1, 24, 14, 14)
CHANNELS = (24, 1, 1)
SCALE_SHIFT = [("Mul", ["x", "s"], ["a"], {}), ("Add", ["a", "t"], ["b"], {}), ("Relu", ["b"], ["y"], {})]

# Nodes; shapes of the operands; the kinds of steps that they become. Planes that are cut by columns and those that are
# not, rows of a few elements and one that is long, operands that repeat along rows, columns or both.
CASES = {
    "scale, shift and a function": (SCALE_SHIFT, {"x": X, "s": CHANNELS, "t": CHANNELS}, ["Broadcast"]),
    "small planes": (SCALE_SHIFT, {"x": (2, 37, 7, 7), "s": (37, 1, 1), "t": (1,)}, ["Broadcast"]),
    "columns": (SCALE_SHIFT, {"x": (3, 11, 5), "s": (5,), "t": (11, 1)}, ["Broadcast"]),
    "a long row": (SCALE_SHIFT, {"x": (1, 9001), "s": (1,), "t": (9001,)}, ["Broadcast"]),
    "a few": (SCALE_SHIFT, {"x": (1, 3), "s": (1,), "t": (3,)}, ["Broadcast"]),
    "many planes": (SCALE_SHIFT, {"x": (2, 150, 10, 30), "s": (150, 1, 1), "t": (2, 1, 10, 30)}, ["Broadcast"]),
    "begins with the smaller": (
        [("Mul", ["s", "x"], ["a"], {}), ("Add", ["t", "a"], ["b"], {}), ("Div", ["b", "u"], ["y"], {})],
        {"x": X, "s": CHANNELS, "t": X, "u": (1, 1, 14)},
        ["Broadcast"],
    ),
    "subtracted from": (
        [("Mul", ["x", "s"], ["a"], {}), ("Sub", ["t", "a"], ["y"], {})],
        {"x": X, "s": CHANNELS, "t": X},
        ["Broadcast", "Elementwise"],
    ),
    "becomes larger": (
        [("Mul", ["x", "s"], ["a"], {}), ("Add", ["a", "t"], ["y"], {})],
        {"x": (24, 14, 1), "s": CHANNELS, "t": (24, 14, 14)},
        ["Broadcast"],
    ),
    "twice itself": (
        [("Mul", ["x", "s"], ["a"], {}), ("Mul", ["a", "a"], ["y"], {})],
        {"x": X, "s": CHANNELS},
        ["Broadcast", "Elementwise"],
    ),
    "a later operand": (
        [("Mul", ["x", "s"], ["a"], {}), ("Exp", ["t"], ["b"], {}), ("Add", ["a", "b"], ["y"], {})],
        {"x": X, "s": CHANNELS, "t": X},
        ["Broadcast", "Unary", "Elementwise"],
    ),
    "many": (
        [("Mul", ["x", "s"], ["a0"], {})]
        + [("Add", [f"a{i}", "t"], [f"a{i + 1}"], {}) for i in range(9)]
        + [("Relu", ["a9"], ["y"], {})],
        {"x": X, "s": CHANNELS, "t": CHANNELS},
        ["Broadcast"],
    ),
}


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_steps_of_their_own(make_model, run_steps, name, quant):
    nodes, shapes, kinds = CASES[name]
    rng = np.random.default_rng(3)
    feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    between = [outputs[0] for _op, _inputs, outputs, _attributes in nodes[:-1]]
    together, steps = run_steps(make_model(nodes, shapes, ["y"]), feeds, quant)
    apart, _ = run_steps(make_model(nodes, shapes, ["y", *between]), feeds, quant)
    assert steps == kinds
    np.testing.assert_array_equal(together, apart)
