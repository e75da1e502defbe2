"""Fault injection: bits that are flipped in outputs, inputs and weights."""

from __future__ import annotations

import numpy as np
import pytest
from faulty_device import total

import tcim_lite.runtime as rt
from tcim_lite import faults

pytestmark = pytest.mark.usefixtures("no_faults_left")


def test_one_bit_of_an_output_is_flipped_in_one_run(adder):
    with faults.inject(kind="bit_flip", output="total", byte=3, bit=7, nth=2) as injected:
        assert (total(adder) == 3).all()
        found = total(adder)
        assert found[0, 1] == -3
        assert (np.delete(found, 1) == 3).all()
        assert (total(adder) == 3).all()
    assert "bit 7 of byte 3 of output 'total' was flipped" in injected.fired[0].text


def test_one_bit_of_an_input_stays_flipped_until_it_is_set(adder):
    with faults.inject(kind="bit_flip", input="a", byte=1, bit=7):
        assert total(adder)[0, 0] == 1
        assert total(adder)[0, 0] == 1
    adder.set_input("a", np.ones((2, 3), np.float32))
    assert (total(adder) == 3).all()


def test_which_bit_is_flipped_depends_on_the_seed_alone(adder):
    def texts(seed: int) -> list[str]:
        with faults.inject(kind="bit_flip", output="total", probability=0.5, seed=seed) as injected:
            for _ in range(20):
                total(adder)
        return [fault.text for fault in injected.fired]

    first = texts(1)
    assert 3 < len(first) < 17
    assert len(set(first)) > 2
    assert texts(1) == first
    assert texts(2) != first


def test_one_bit_of_a_weight_is_flipped_in_memory_alone_and_a_reset_restores_it(linear_pair, hal):
    before = linear_pair[0].with_name("linear.hmw").read_bytes()
    x = np.ones((1, 4, 8), np.float32)

    def load(path):
        loaded = rt.load(path)
        loaded.set_input("x", x)
        return loaded

    def answer(module) -> np.ndarray:
        module.run(True)
        return module.get_output("y").numpy()

    good = answer(load(linear_pair[0]))
    with faults.inject(kind="bit_flip", weight="w", byte=3, bit=6) as injected:
        module = load(linear_pair[0])
        bad = answer(module)
        assert (bad != good).any()
        np.testing.assert_array_equal(answer(module), bad)
        hal.ipu_reset(0)
        np.testing.assert_array_equal(answer(module), good)
    assert "bit 6 of byte 3 of weight 'w' was flipped" in injected.fired[0].text
    with faults.inject(kind="bit_flip", weight="w", call="execute", byte=3, bit=6, nth=2):
        np.testing.assert_array_equal(answer(module), good)
        np.testing.assert_array_equal(answer(module), bad)
    np.testing.assert_array_equal(answer(module), good)
    assert linear_pair[0].with_name("linear.hmw").read_bytes() == before


def test_a_byte_outside_of_the_tensor_is_said(adder):
    with faults.inject(kind="bit_flip", output="total", byte=12) as injected:
        assert (total(adder) == 3).all()
    assert "output 'total' has 12 bytes and no byte 12; nothing was flipped" in injected.fired[0].text
