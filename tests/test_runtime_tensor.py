"""Tensors and infos: scratch memory, and what is refused. The rest: tests/corners."""

import numpy as np
import pytest

import tcim_lite.runtime as rt


@pytest.fixture
def add(add_model):
    module = rt.load(add_model)
    module.set_input("a", np.arange(6))
    module.run()
    return module


def test_outputs_are_zero_before_the_first_run(add_model):
    assert not rt.load(add_model).get_output("total").numpy().any()


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


def test_arguments_of_a_wrong_type_are_named(add_model):
    tensor = rt.Tensor(rt.TensorInfo((2, 3)))
    for call in (
        lambda: rt.Tensor(None),
        lambda: rt.Tensor(tensor),
        lambda: tensor.copy_to(None),
        lambda: tensor.cast_to(np.zeros((2, 3))),
        lambda: tensor.info.is_match(None),
    ):
        with pytest.raises(TypeError, match=r"expected a tcim_lite\.runtime\.Tensor(Info)?, got"):
            call()
    for shape in ("34", (2.5, 3), None, 5, ("2",)):
        with pytest.raises(TypeError, match="shape: expected"):
            rt.TensorInfo(shape)
        with pytest.raises(TypeError, match="shape: expected"):
            tensor.select_roi((0, 0), shape)
    with pytest.raises(rt.ArgumentError, match="does not fit 64 bits"):
        rt.TensorInfo((1 << 70,))
