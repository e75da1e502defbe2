"""Divisions of integers that exporters write with floats are exact; others stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from integer_casts import FLOAT, INT, NUMBERS


def floors(divisor):
    """A division of "n" as torch's exporter writes `//` of integers, to "r"."""
    nodes = [
        ("Cast", ["n"], ["f"], FLOAT),
        ("Div", ["f", "by"], ["q"], {}),
        ("Floor", ["q"], ["w"], {}),
        ("Cast", ["w"], ["r"], INT),
    ]
    return nodes, {"by": np.float32(divisor)}


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize("divisor", [1, 5, 2**20])
def test_a_floor_division_written_with_floats_is_exact(divisor, quant, of_integers, run_here):
    n = np.concatenate([NUMBERS[NUMBERS > -(2**31)], np.random.default_rng(6).integers(-(2**30), 2**31, 3000)])
    nodes, constants = floors(divisor)
    nodes += [("Equal", ["r", "wanted"], ["e"], {}), ("Cast", ["e"], ["y"], FLOAT)]
    model = of_integers(nodes, {"n": n.shape}, ["y"], {**constants, "wanted": n // divisor})
    assert run_here(model, {"n": n.astype(np.int32)}, quant)["y"].all()


@pytest.mark.parametrize("divisor", [2.5, -2.0])
def test_other_divisions_stay_what_they_are(divisor, of_integers, run_here, run_there):
    n = np.arange(-40, 40)
    nodes, constants = floors(divisor)
    model = of_integers([*nodes, ("Cast", ["r"], ["y"], FLOAT)], {"n": n.shape}, ["y"], constants)
    there = run_there(model, {"n": n})["y"]
    np.testing.assert_array_equal(run_here(model, {"n": n.astype(np.int32)})["y"], there)


def test_floats_are_not_divided_as_integers(make_model, run_here):
    nodes, constants = floors(3)
    model = make_model([*nodes, ("Cast", ["r"], ["y"], FLOAT)], {"n": (4,)}, ["y"], constants)
    y = run_here(model, {"n": np.array([5.9, 6.1, -0.5, 8.9], np.float32)})["y"]
    np.testing.assert_array_equal(y, [1, 2, -1, 2])
