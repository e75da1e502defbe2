"""MatMul, Softmax and MatMul as one step have the bits of the ops one by one, which an output between them keeps."""

from __future__ import annotations

import numpy as np
import pytest

NODES = [
    ("MatMul", ["q", "k"], ["scores"], {}),
    ("Softmax", ["scores"], ["p"], {"axis": -1}),
    ("MatMul", ["p", "v"], ["y"], {}),
]
# Shapes of q, k and v: several blocks of rows and panels of columns, and parts of them; keys that heads share.
SHAPES = {
    "heads": [(2, 3, 100, 16), (2, 3, 16, 70), (2, 3, 70, 40)],
    "shared keys": [(2, 3, 50, 8), (1, 1, 8, 33), (2, 1, 33, 64)],
    "one row": [(1, 32), (32, 9), (9, 5)],
}


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize("kind", SHAPES)
def test_the_step_has_the_bits_of_its_ops(make_model, run_steps, kind, quant):
    rng = np.random.default_rng(4)
    shapes = dict(zip("qkv", SHAPES[kind], strict=True))
    feeds = {name: (2 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    together, steps = run_steps(make_model(NODES, shapes, ["y"]), feeds, quant)
    apart, others = run_steps(make_model(NODES, shapes, ["y", "p"]), feeds, quant)
    assert steps == ["Attention"]
    assert sorted(set(others)) == ["MatMul", "Softmax"]
    np.testing.assert_array_equal(together, apart)


def test_a_softmax_on_the_right_stays_apart(make_model, run_steps):
    shapes = {"q": (5, 8), "k": (8, 6), "v": (3, 5)}
    nodes = [*NODES[:2], ("MatMul", ["v", "p"], ["y"], {})]
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    y, steps = run_steps(make_model(nodes, shapes, ["y"]), feeds, "float32")
    assert "Attention" not in steps
    np.testing.assert_allclose(y, np.full((3, 6), 5 / 6), rtol=1e-6)
