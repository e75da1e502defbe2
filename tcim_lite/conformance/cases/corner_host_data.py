"""C-3 to C-6: what set_input does with host data. All conversions: tests/test_runtime_conversion.py."""

import numpy as np

from .. import under_test as rt
from ..checks import refused, same_rows


def test_c03_host_data_is_copied_at_call_time(add):
    values = np.ones((2, 3), np.float16)
    add.set_input("a", values)
    values[:] = 7
    add.set_input("b", np.full((2, 3), 2, np.float16))  # a temporary, gone now
    add.run()
    add.sync()
    np.testing.assert_array_equal(add.get_output("total").numpy(), np.full((2, 3), 3))


def test_c03_a_host_tensor_is_copied_at_call_time(add):
    tensor = rt.Tensor(add.get_input_info("a").ascontiguous(), np.ones((2, 3)))
    add.set_input("a", tensor)
    tensor.set_zero()
    add.run(True)
    np.testing.assert_array_equal(add.get_output("total").numpy(), np.ones((2, 3)))


def test_c03_a_queued_run_sees_what_was_set_before_it(slow):
    shape = (1, 256, 4096)
    slow.set_input("a", np.ones(shape, np.float32))
    slow.run(False, rt.RunOption(10))
    slow.set_input("a", np.full(shape, 5, np.float32))
    assert (slow.get_output("total").numpy() == 1).all()


def test_c04_inputs_persist_between_runs(add):
    add.set_input("a", np.full((2, 3), 2))
    for b in (1, 5):
        add.set_input("b", np.full((2, 3), b))
        add.run(True)
        np.testing.assert_array_equal(add.get_output("total").numpy(), np.full((2, 3), 2 + b))
    add.run(True)
    np.testing.assert_array_equal(add.get_output("total").numpy(), np.full((2, 3), 7))


def test_c04_current_length_is_set_once(pair, caches, rows, attention_pair, step):
    prefill, decode = pair
    for name in caches:
        decode.set_input(name, prefill.get_dev_input(name))
    whole = step(rt.load(attention_pair[0]), rows(4), 0)
    decode.set_input("current_length", np.array(1).astype("int32"))
    for token in range(4):
        decode.set_input("input_1", rows(4)[:, token : token + 1])
        decode.set_input("valid_length", np.array(token).astype("int32"))
        decode.run()
        decode.sync()
        same_rows(decode.get_output("logits").numpy()[0, 0], whole[token])


def through(module, name, value):
    """What the device makes of it."""
    module.set_input(name, value)
    return module.get_dev_input(name).numpy()


def test_c05_float32_becomes_float16_as_numpy_does_it(add):
    rng = np.random.default_rng(0)
    special = np.array([[65504, 65519.99, 65520], [-1e9, 6e-8, -0.0]], np.float32)
    with np.errstate(over="ignore"):
        for values in (special, *(rng.standard_normal((20, 2, 3)) * 10.0 ** rng.integers(-9, 6, (20, 1, 1)))):
            for dtype in (np.float32, np.float64):
                expected = values.astype(dtype).astype(np.float16)
                np.testing.assert_array_equal(
                    through(add, "a", values.astype(dtype)).view(np.uint16), expected.view(np.uint16)
                )


def test_c05_float64_is_rounded_once(add):
    """A hair over the middle of two float16 numbers, which float32 would round to the middle."""
    values = np.full((2, 3), 1 + 2.0**-11 + 2.0**-40)
    assert (through(add, "a", values) == 1 + 2.0**-10).all()
    assert (through(add, "a", -values) == -1 - 2.0**-10).all()


def test_c05_equal_dtypes_keep_every_bit(add):
    """Also those of a NaN, quiet or signalling, of denormals and of minus zero."""
    bits = np.array([[0x7C01, 0xFE55, 0x7FFF], [0x8000, 0x0001, 0xFC00]], np.uint16)
    np.testing.assert_array_equal(through(add, "a", bits.view(np.float16)).view(np.uint16), bits)
    tensor = rt.Tensor(add.get_input_info("b").ascontiguous(), bits.view(np.float16))
    np.testing.assert_array_equal(through(add, "b", tensor).view(np.uint16), bits)


def test_c05_uint8_and_int8_are_reinterpreted(add):
    assert add.get_input_info("image").dtype is np.int8
    assert through(add, "image", np.array([200, 127, 0, 255], np.uint8)).tolist() == [-56, 127, 0, -1]
    tensor = rt.Tensor(rt.TensorInfo((2,), np.uint8), np.array([-56, -1], np.int8))
    assert tensor.numpy().tolist() == [200, 255]


def test_c05_an_integer_that_does_not_fit_is_refused_and_changes_nothing(add):
    add.set_input("length", np.array([7], np.int64))
    with refused("ValueError", "does not fit int32"):
        add.set_input("length", np.array([1 << 31], np.int64))
    assert add.get_dev_input("length").numpy().tolist() == [7]


def test_c06_zero_dimensional_arrays_feed_inputs_of_one_element(add):
    assert through(add, "length", np.array(7).astype("int32")).tolist() == [7]
    assert through(add, "length", np.int16(-3)).tolist() == [-3]
    assert through(add, "length", 12).tolist() == [12]
    with refused("ValueError", "4 elements"):
        add.set_input("image", np.array(1, np.int8))
