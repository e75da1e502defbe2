"""Inputs, outputs, tensors and infos: what is refused, set_output, scratch memory. The rest: tcim_lite/conformance."""

import numpy as np
import pytest

import tcim_lite.runtime as rt


@pytest.fixture
def add(add_model):
    return rt.load(add_model)


def test_set_output_binds_devices_and_fills_hosts(add):
    add.set_input("a", np.full((2, 3), 1.5))
    host = rt.Tensor(rt.TensorInfo((6,), np.float32))
    add.set_output("total", host)
    before = host.numpy()
    add.run()
    np.testing.assert_array_equal(host.numpy(), np.full(6, 1.5))
    assert before.dtype == np.float32
    target = add.get_dev_input("b").clone(False)
    add.set_output("total", target)
    add.run(True)
    np.testing.assert_array_equal(target.numpy(), np.full((2, 3), 1.5))


def test_older_programs_pass_outputs_on_by_their_place(add, add_model):
    """As the first programs for language models in parts do, on one stream."""
    stream, second = rt.Stream(0), rt.load(add_model)
    for module in (add, second):
        module.set_stream(stream)
    second.set_input("a", add.get_output("total", rt.Device.HDPL))  # bound before there is a result
    second.set_input("b", np.full((2, 3), 0.5))
    for value in (1.0, 2.0):
        add.set_input("a", np.full((2, 3), value))
        add.run()
        second.run()
        second.sync()
        np.testing.assert_array_equal(second.get_output("total").numpy(), np.full((2, 3), value + 0.5))
    assert stream.yield_() is None
    kept = add.get_output("total", rt.Device.CPU)
    assert (kept.device, add.get_output("total", rt.Device.HDPL).device) == (rt.Device.CPU, rt.Device.HDPL)
    add.set_input("a", np.zeros((2, 3)))
    add.run(True)
    np.testing.assert_array_equal(kept.numpy(), np.full((2, 3), 2.0))
    with pytest.raises(rt.UnknownNameError, match="'nope'"):
        add.get_output("nope", rt.Device.HDPL)


@pytest.mark.parametrize("call", ["get_input_info", "get_output_info", "get_dev_input", "get_output", "get_dev_output"])
def test_unknown_names_are_errors_of_both_kinds(add, call):
    with pytest.raises(KeyError, match=r"no .*put is named 'nope'") as caught:
        getattr(add, call)("nope")
    assert isinstance(caught.value, RuntimeError)


def test_set_input_refuses_what_does_not_fit(add):
    with pytest.raises(rt.UnknownNameError, match=r"^Module set_input error: .*'nope'.* a, b, image, length"):
        add.set_input("nope", np.zeros(6))
    with pytest.raises(rt.ShapeError, match=r"'a' is float16 \[2, 3\] with 6 elements, got shape \[7\]"):
        add.set_input("a", np.zeros(7))
    with pytest.raises(rt.ShapeError, match="int32"):
        add.set_input("a", add.get_dev_input("length"))
    wide = add.get_dev_output("total").astype(np.int8)
    with pytest.raises(rt.ShapeError, match="strided"):
        add.set_input("image", wide.select_roi([0, 0], [2, 2]))
    with pytest.raises(rt.ArgumentError, match=r"needs a device tensor, .* use set_input"):
        add.set_dev_input("a", add.get_output("total"))
    with pytest.raises(rt.ArgumentError, match=r"needs a device tensor, .* use set_output"):
        add.set_dev_output("total", add.get_output("total"))
    with pytest.raises(TypeError, match=r"expected a tcim_lite\.runtime\.Tensor"):
        add.set_dev_input("a", np.zeros((2, 3)))
    with pytest.raises(rt.ArgumentError, match="index 4"):
        add.get_input_name(4)


def test_a_value_that_does_not_fit_leaves_a_dummy_unbound(attention_pair):
    decode = rt.load(attention_pair[1], rt.Option().set_dummy_tensors(["valid_length"]))
    decode.set_input("current_length", 1)
    with pytest.raises(rt.ArgumentError, match="does not fit int32, input 'valid_length'"):
        decode.set_input("valid_length", 1 << 40)
    with pytest.raises(rt.StateError, match="input 'valid_length'"):
        decode.run(True)


def test_scratch_tensors_from_an_info(add):
    info = add.get_input_info("a")
    assert list(add.input_infos) == [add.get_input_name(index) for index in range(add.get_num_inputs())]
    assert add.input_infos["a"].shape == info.shape
    scratch = rt.Tensor(info)
    assert scratch.device == rt.Device.HDPL
    host = scratch.to_host(to_contiguous=True)
    assert host.device == rt.Device.CPU
    assert not host.numpy().any()
    wrapped = rt.Tensor(info.astype(np.float32), np.ones((2, 3)))
    assert wrapped.device == rt.Device.CPU
    add.set_input("a", wrapped)
    np.testing.assert_array_equal(np.asarray(add.get_dev_input("a"), dtype=np.float64), np.ones((2, 3)))


def test_bad_infos_are_refused():
    with pytest.raises(rt.ShapeError, match="at least 1"):
        rt.TensorInfo((2, 0))
    with pytest.raises(rt.ShapeError, match="at most"):
        rt.TensorInfo((1 << 40, 1 << 40))
    with pytest.raises(rt.ShapeError, match="5 elements"):
        rt.Tensor(rt.TensorInfo((6,)), np.zeros(5))
