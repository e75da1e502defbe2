"""A model whose device gets faults, and rules that end with a test."""

from __future__ import annotations

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import layers


@pytest.fixture
def no_faults_left():
    """Rules end with the test that began them."""
    yield
    layers.disable("faults")


@pytest.fixture
def adder(add_model):
    """total = a + b; a is ones, b is twos."""
    loaded = rt.load(add_model)
    loaded.set_input("a", np.ones((2, 3), np.float32))
    loaded.set_input("b", np.full((2, 3), 2, np.float32))
    return loaded


def total(adder) -> np.ndarray:
    adder.run()
    adder.sync()
    return adder.get_output("total").numpy()
