"""Tensor and TensorInfo (C-11, C-12, C-14, C-15, C-16)."""

import numpy as np
import pytest

import tcim_lite.runtime as rt


@pytest.fixture
def add(add_model):
    module = rt.load(add_model)
    module.set_input("a", np.arange(6))
    module.run()
    return module


def test_c11_get_output_is_a_host_copy_that_later_runs_leave_alone(add):
    first = add.get_output("total")
    assert first.device == rt.Device.CPU
    assert first.to_host() is first
    array = first.numpy()
    del first
    add.set_input("a", np.zeros(6))
    add.run()
    assert add.get_output("total").numpy().sum() == 0
    np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3))
    assert array.flags.writeable


def test_outputs_are_zero_before_the_first_run(add_model):
    assert not rt.load(add_model).get_output("total").numpy().any()


def test_c12_get_output_delivers_the_dtype_of_an_info(add):
    info = add.get_output_info("total").ascontiguous().astype(np.float32)
    tensor = add.get_output("total", info)
    assert tensor.dtype is np.float32
    np.testing.assert_array_equal(tensor.numpy(), np.arange(6, dtype=np.float32).reshape(2, 3))
    assert add.get_output("total", info=rt.TensorInfo((6,), np.int16)).numpy().tolist() == list(range(6))
    with pytest.raises(rt.ShapeError, match="with 7"):
        add.get_output("total", rt.TensorInfo((7,)))


def test_c14_infos_speak_numpy(add):
    info = add.get_input_info("a")
    assert str(info.shape) == "(2, 3)"
    assert info.dtype is np.float16
    assert str(info.dtype) == "<class 'numpy.float16'>"
    assert info.format.name == "ND"
    assert np.dtype(info.dtype).name == "float16"
    assert (info.mem_size, info.stride, info.name, info.device) == (12, (3, 1), "a", rt.Device.HDPL)
    assert info.astype(np.dtype("int8")).ascontiguous().dtype is np.int8
    assert info.is_match(info.clone())
    assert not info.is_match(info.astype(np.float32))
    with pytest.raises(rt.ArgumentError, match="float64"):
        info.astype(np.float64)


def test_c15_astype_cast_and_cast_to(add):
    tensor = add.get_output("total")
    for verb in (tensor.astype, tensor.cast):
        assert verb(np.float32).numpy().dtype == np.float32
    target = rt.Tensor(rt.TensorInfo((6,), np.int32))
    tensor.cast_to(target)
    assert target.numpy().tolist() == list(range(6))
    with pytest.raises(rt.ShapeError):
        tensor.cast_to(rt.Tensor(rt.TensorInfo((5,), np.int32)))


def test_c15_copy_to_copies_from_self(add):
    source = add.get_dev_output("total")
    device, host = rt.Tensor(source.info), rt.Tensor(rt.TensorInfo((3, 2)))
    source.copy_to(device)
    device.copy_to(host)
    np.testing.assert_array_equal(host.numpy(), np.arange(6).reshape(3, 2))
    host.copy_to(host.clone())
    with pytest.raises(rt.ShapeError, match="cast_to"):
        source.copy_to(rt.Tensor(rt.TensorInfo((6,), np.float32)))


def test_c15_clone_and_set_zero(add):
    tensor = add.get_dev_output("total")
    twin = tensor.clone(True)
    tensor.set_zero()
    assert not tensor.numpy().any()
    np.testing.assert_array_equal(twin.numpy(), np.arange(6).reshape(2, 3))
    assert twin.device == rt.Device.HDPL
    assert tensor.clone(False).shape == (2, 3)


def test_c15_select_roi_is_a_view():
    tensor = rt.Tensor(rt.TensorInfo((4, 5), np.int32), np.arange(20))
    view = tensor.select_roi([1, 2], [2, 3])
    np.testing.assert_array_equal(view.numpy(), np.arange(20).reshape(4, 5)[1:3, 2:5])
    assert view.info.stride == (5, 1)
    dense = view.to_host(to_contiguous=True)
    assert dense.info.stride == (3, 1)
    assert view.to_host() is view
    view.set_zero()
    assert tensor.numpy().sum() == 190 - (7 + 8 + 9 + 12 + 13 + 14)
    dense.copy_to(view.select_roi([0, 0], [2, 3]))
    np.testing.assert_array_equal(tensor.numpy(), np.arange(20).reshape(4, 5))
    for start, shape in (([3, 3], [2, 2]), ([0], [1]), ([-1, 0], [1, 1]), ([0, 0], [0, 5])):
        with pytest.raises(rt.ShapeError, match="do not lie inside"):
            tensor.select_roi(start, shape)


def test_c15_device_views_come_to_the_host(add):
    view = add.get_dev_output("total").select_roi([0, 1], [2, 2])
    for array in (view.numpy(), view.to_host().numpy(), view.to_host(True).numpy(), np.asarray(view.to_host())):
        np.testing.assert_array_equal(array, [[1, 2], [4, 5]])
    assert view.to_host().info.stride == (3, 1)
    assert view.to_host(True).info.stride == (2, 1)


def test_c16_every_tensor_is_a_tensor(add):
    device = add.get_dev_output("total")
    made = [add.get_output("total"), device, add.get_input("a"), add.get_dev_input("a"), rt.Tensor(device.info)]
    made += [device.to_host(), device.clone(), device.select_roi([0, 0], [1, 1]), device.astype(np.float32)]
    assert all(isinstance(tensor, rt.Tensor) for tensor in made)


def test_scratch_tensors_from_an_info(add):
    info = add.get_input_info("a")
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
