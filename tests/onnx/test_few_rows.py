"""A MatMul of few rows reads its right side where it lies, before a Transpose too, with the bits of all other ways."""

from __future__ import annotations

import numpy as np
import pytest

# Shapes of q and of k before its Transpose, the Transpose, and whether it is part of the product. Parts of vectors, of
# columns and of terms; left and right sides that batches share; batches that lie between the rows.
CASES = {
    "cache": ((2, 3, 1, 16), (2, 3, 100, 16), (0, 1, 3, 2), True),
    "tokens first": ((2, 3, 2, 70), (2, 33, 3, 70), (0, 2, 3, 1), True),
    "shared right side": ((2, 3, 4, 65), (1, 1, 17, 65), (0, 1, 3, 2), True),
    "shared left side": ((1, 8), (5, 40, 8), (0, 2, 1), True),
    "two columns": ((3, 1, 64), (3, 2, 64), (0, 2, 1), True),
    "long": ((2, 1, 64), (2, 1500, 64), (0, 2, 1), True),
    "eight rows": ((3, 8, 70), (3, 100, 70), (0, 2, 1), True),
    "more rows": ((3, 9, 64), (3, 20, 64), (0, 2, 1), False),
    "terms apart": ((3, 1, 20), (20, 3, 64), (1, 0, 2), False),
}


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_two_steps_and_of_many_rows(make_model, run_steps, name, quant):
    q_shape, k_shape, perm, is_part = CASES[name]
    nodes = [("Transpose", ["k"], ["t"], {"perm": list(perm)}), ("MatMul", ["q", "t"], ["y"], {})]
    rng = np.random.default_rng(4)
    feeds = {"q": rng.standard_normal(q_shape, np.float32), "k": rng.standard_normal(k_shape, np.float32)}
    shapes = {"q": q_shape, "k": k_shape}
    together, steps = run_steps(make_model(nodes, shapes, ["y"]), feeds, quant)
    apart, others = run_steps(make_model(nodes, shapes, ["y", "t"]), feeds, quant)
    assert ("Move" in steps) != is_part
    assert "Move" in others
    np.testing.assert_array_equal(together, apart)

    feeds["q"] = np.repeat(feeds["q"], 8, axis=-2)
    shapes["q"] = feeds["q"].shape
    many, _ = run_steps(make_model(nodes, shapes, ["y"]), feeds, quant)
    np.testing.assert_array_equal(together, many[..., ::8, :])


@pytest.mark.parametrize("rows", [1, 4, 5, 8])
@pytest.mark.parametrize("quant", ["float32", "float16"])
def test_attention_of_few_rows_reads_keys_before_their_transpose(make_model, run_steps, quant, rows):
    nodes = [
        ("Transpose", ["k"], ["t"], {"perm": [0, 2, 1]}),
        ("MatMul", ["q", "t"], ["scores"], {}),
        ("Softmax", ["scores"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "v"], ["y"], {}),
    ]
    shapes = {"q": (3, rows, 24), "k": (3, 77, 24), "v": (3, 77, 40)}
    rng = np.random.default_rng(4)
    feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    together, steps = run_steps(make_model(nodes, shapes, ["y"]), feeds, quant)
    apart, _ = run_steps(make_model(nodes, shapes, ["y", "t", "scores", "p"]), feeds, quant)
    assert steps == ["Attention"]
    np.testing.assert_array_equal(together, apart)
