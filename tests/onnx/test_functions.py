"""What the unary ops and Pow compute, against exact arithmetic (docs/numerics.md section 11)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from graph_maker import GraphMaker

from tcim_lite.runtime import Module

COUNT = 40_000


def run(op, x, other=None):
    """y = op(x[, other]) in float32."""
    maker = GraphMaker(op, "float32")
    given = {"x": x} if other is None else {"x": x, "b": other}
    operands = [maker.input(name, x.shape) for name in given]
    module = Module.load(maker.file(maker.op(op, operands, "y", x.shape)))
    for name, values in given.items():
        module.set_input(name, values)
    module.run(sync=True)
    return module.get_output("y").numpy()


def ulps(got, exact):
    """The error in units of the last place of the exact result."""
    return np.max(np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32)))


@pytest.fixture
def numbers():
    random = np.random.default_rng(9)
    spread = np.ldexp(random.uniform(0.5, 1, COUNT), random.integers(-20, 7, COUNT)) * random.choice([-1, 1], COUNT)
    return spread.astype(np.float32)


EXACT = {
    "Tanh": (np.tanh, 4),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4),
    "Silu": (lambda x: x / (1 + np.exp(-x)), 4),
    "Softplus": (lambda x: np.logaddexp(0, x), 4),
    "Reciprocal": (lambda x: 1 / x, 0.5),
    "Floor": (np.floor, 0),
    "Ceil": (np.ceil, 0),
    "Round": (np.rint, 0),
    "Sign": (np.sign, 0),
    "Abs": (np.abs, 0),
    "Neg": (np.negative, 0),
    "Relu": (lambda x: np.maximum(x, 0), 0),
}


@pytest.mark.parametrize("op", EXACT)
def test_functions_are_within_their_bound(op, numbers):
    function, bound = EXACT[op]
    x = np.clip(numbers, -80, 80)
    assert ulps(run(op, x), function(x.astype(np.float64))) <= bound


@pytest.mark.parametrize(("op", "bound"), [("Log", 2), ("Sqrt", 0.5)])
def test_functions_of_positive_numbers(op, bound, numbers):
    x = np.concatenate([np.abs(numbers), np.float32([1, 1e-40, 3e38]), 1 + numbers[:5000] * np.float32(1e-3)])
    exact = {"Log": np.log, "Sqrt": np.sqrt}[op](x.astype(np.float64))
    assert ulps(run(op, x)[exact != 0], exact[exact != 0]) <= bound


@pytest.mark.parametrize(("op", "exact"), [("Sin", np.sin), ("Cos", np.cos)])
def test_angles_of_any_size(op, exact, numbers):
    """Large ones are reduced by as many bits of 2 / pi as they need; near a multiple of pi / 2 little is left."""
    random = np.random.default_rng(4)
    large = np.ldexp(random.uniform(-1, 1, COUNT), random.integers(7, 129, COUNT)).astype(np.float32)
    multiples = (np.arange(-60_000, 60_000) * (np.pi / 2)).astype(np.float32)
    edges = np.float32([2**17, np.nextafter(np.float32(2**17), np.float32(0)), 3.4e38, 1e-40])
    x = np.concatenate([numbers, large, multiples, edges, -edges])
    assert ulps(run(op, x), exact(x.astype(np.float64))) <= 2


def test_arc_tangent(numbers):
    x = np.concatenate([numbers, np.float32([1e-40, 0.41421357, 2.4142137, 3e38])])
    assert ulps(run("Atan", x), np.arctan(x.astype(np.float64))) <= 3


def test_erf_and_gelu(numbers):
    x = np.clip(numbers, -9, 9)
    exact = np.array([math.erf(value) for value in x.astype(np.float64)])
    assert np.abs(run("Erf", x) - exact).max() <= 4e-7
    gelu = np.array([value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in x.astype(np.float64)])
    assert (np.abs(run("Gelu", x) - gelu) / np.maximum(1, np.abs(x))).max() <= 4e-7


def test_pow(numbers):
    base = np.abs(numbers)
    exponent = np.random.default_rng(1).uniform(-6, 6, COUNT).astype(np.float32)
    exact = base.astype(np.float64) ** exponent.astype(np.float64)
    inside = (exact > 1e-37) & (exact < 3e38)
    got = run("Pow", base, exponent)
    assert np.max(np.abs(got[inside] / exact[inside] - 1)) <= 1e-5
    signed = np.float32([-2, -2, -3, 2, 0, 0, -0.0, 5, -1, 4, 9])
    powers = np.float32([3, 2, -1, -2, 0, 2, 3, 0.5, 70001, 0.5, -0.5])
    with np.errstate(all="ignore"):
        wanted = np.power(signed, powers)
    np.testing.assert_allclose(run("Pow", signed, powers), wanted, rtol=1e-6)
    assert np.isnan(run("Pow", np.float32([-2]), np.float32([0.5])))


def test_weights_and_numbers_repeat():
    """b repeats along the columns, c along the rows."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4) + np.float32(0.5)
    b, c = np.float32([[1], [2], [50]]), np.float32([1, -2, 3, 4])
    maker = GraphMaker("g", "float32")
    operands = [maker.input("x", (3, 4)), maker.weight("b", "float32", (3, 1))]
    difference = maker.op("Sub", operands, "u", (3, 4), broadcast=1)
    operands = [maker.weight("c", "float32", (4,)), difference]
    module = Module.load(maker.file(maker.op("Div", operands, "v", (3, 4), broadcast=1), b=b, c=c))
    module.set_input("x", x)
    module.run(sync=True)
    np.testing.assert_array_equal(module.get_output("v").numpy(), c / (x - b))
