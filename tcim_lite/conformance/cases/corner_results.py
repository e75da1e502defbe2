"""C-11, C-12 and C-14 to C-16: outputs, infos and tensors."""

import numpy as np

from .. import under_test as rt
from ..checks import refused
from ..registry import each

VALUES = np.arange(6).reshape(2, 3)


def given(add):
    """`add` with a `total` of VALUES."""
    add.set_input("a", VALUES)
    add.run()
    add.sync()
    return add


def test_c11_get_output_is_on_the_host_and_can_be_fetched_again(add):
    ran = given(add)
    first, second = ran.get_output("total"), ran.get_output("total")
    assert not rt.is_emulator() or first.device == rt.Device.CPU
    assert first.to_host() is first
    assert first.to_host(to_contiguous=True) is first
    first.set_zero()
    np.testing.assert_array_equal(second.numpy(), VALUES)
    np.testing.assert_array_equal(ran.get_output("total").numpy(), VALUES)


def test_c11_arrays_are_safe_to_keep(add):
    ran = given(add)
    output, device = ran.get_output("total"), ran.get_dev_output("total")
    kept = [output.numpy(), device.numpy(), device.to_host().numpy(), device.to_host(True).numpy(), np.asarray(output)]
    del output
    ran.set_input("a", np.full((2, 3), 9))
    ran.run()
    ran.sync()
    assert (ran.get_output("total").numpy() == 9).all()
    for array in kept:
        np.testing.assert_array_equal(array, VALUES)
        assert array.flags.writeable


def test_c11_arrays_taken_before_their_tensor_became_an_output_are_safe_too(add):
    ran = given(add)
    host = rt.Tensor(rt.TensorInfo((2, 3), np.float32), VALUES)
    view = host.select_roi([0, 1], [2, 2])
    arrays = [host.numpy(), view.numpy()]
    ran.set_output("total", host)
    ran.set_input("a", np.full((2, 3), 9))
    ran.run()
    ran.sync()
    np.testing.assert_array_equal(arrays[0], VALUES)
    np.testing.assert_array_equal(arrays[1], VALUES[:, 1:])
    assert (host.numpy() == 9).all()
    assert (view.numpy() == 9).all()  # a view still shares its parent's memory
    after = host.numpy()
    ran.set_input("a", VALUES)
    ran.run(True)
    assert (after == 9).all()


def test_c12_get_output_takes_an_info(add):
    ran = given(add)
    info = ran.get_output_info("total").ascontiguous()
    tensor = ran.get_output("total", info)
    assert tensor.dtype is np.float16
    np.testing.assert_array_equal(tensor.astype(np.float32).numpy(), VALUES)
    wide = ran.get_output("total", info.astype(np.float32))
    assert wide.dtype is np.float32
    assert not rt.is_emulator() or wide.device == rt.Device.CPU
    np.testing.assert_array_equal(wide.numpy(), VALUES)
    assert ran.get_output("total", info=rt.TensorInfo((6,), np.int16)).numpy().tolist() == list(range(6))
    with refused("ShapeError", "with 7"):
        ran.get_output("total", rt.TensorInfo((7,)))


def test_c14_infos_speak_numpy(add):
    ran = given(add)
    info = ran.get_input_info("a")
    assert (str(info.shape), info.shape[1], list(info.shape)) == ("(2, 3)", 3, [2, 3])
    assert isinstance(info.shape, tuple)
    assert info.dtype is np.float16
    assert [str(ran.get_input_info(name).dtype) for name in ("image", "length")] == [
        "<class 'numpy.int8'>",
        "<class 'numpy.int32'>",
    ]
    assert info.format.name == "ND"
    assert np.dtype(info.dtype).name == "float16"
    assert np.empty((), dtype=info.dtype).dtype == VALUES.astype(info.dtype).dtype == np.float16


def test_c14_ascontiguous_and_astype_chain_in_either_order(add):
    ran = given(add)
    info = ran.get_output_info("total")
    for other in (info.ascontiguous().astype(np.float32), info.astype(np.dtype("float32")).ascontiguous()):
        assert (other.shape, other.dtype, other.stride, other.mem_size) == ((2, 3), np.float32, (3, 1), 24)
    assert info.dtype is np.float16
    assert info.is_match(info.clone())
    assert not info.is_match(info.astype(np.float32))
    with refused("ValueError", "float64"):
        info.astype(np.float64)


@each("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32"])
def test_c14_the_eight_types_have_numpys_names(dtype):
    info = rt.TensorInfo((3,), dtype)
    assert info.dtype is getattr(np, dtype)
    assert rt.Tensor(info).numpy().dtype == np.dtype(dtype)


@each("place", ["get_output", "get_dev_output"])
def test_c15_astype_and_cast_convert_into_a_new_tensor(add, place):
    ran = given(add)
    tensor = getattr(ran, place)("total")
    for verb in (tensor.astype, tensor.cast):
        converted = verb(np.float32)
        assert converted.dtype is np.float32
        assert converted.device == tensor.device
        np.testing.assert_array_equal(converted.numpy(), VALUES)
        converted.set_zero()
    np.testing.assert_array_equal(tensor.numpy(), VALUES)


def test_c15_cast_to_converts_into_an_existing_tensor(add):
    ran = given(add)
    target = rt.Tensor(rt.TensorInfo((6,), np.int32))
    ran.get_dev_output("total").cast_to(target)
    assert target.numpy().tolist() == list(range(6))
    with refused("ShapeError"):
        target.cast_to(rt.Tensor(rt.TensorInfo((5,), np.int32)))


def test_c15_copy_to_copies_self_into_the_argument(add):
    ran = given(add)
    source = ran.get_dev_output("total")
    device, other, host = rt.Tensor(source.info), rt.Tensor(source.info), rt.Tensor(rt.TensorInfo((3, 2)))
    source.copy_to(device)  # device to device
    device.copy_to(host)  # to the host
    host.copy_to(host.clone(False))
    host.copy_to(other)  # and back
    np.testing.assert_array_equal(host.numpy(), VALUES.reshape(3, 2))
    np.testing.assert_array_equal(other.numpy(), VALUES)
    with refused("ShapeError", "cast_to"):
        source.copy_to(rt.Tensor(rt.TensorInfo((6,), np.float32)))


def test_c15_clone_is_new_memory_in_the_same_place(add):
    ran = given(add)
    for tensor in (ran.get_dev_output("total"), ran.get_output("total")):
        twin = tensor.clone(True)
        assert twin.device == tensor.device
        assert tensor.clone(False).info.is_match(tensor.info)
        tensor.set_zero()
        assert not tensor.numpy().any()
        np.testing.assert_array_equal(twin.numpy(), VALUES)


@each("on_device", [False, True])
def test_c15_select_roi_is_a_view(on_device, kit):
    values = np.arange(20, dtype=np.float32).reshape(4, 5)
    module = rt.load(kit.model("add_4x5"))
    module.set_input("a", values)
    tensor = module.get_dev_input("a") if on_device else rt.Tensor(module.get_input_info("a"), values)
    view = tensor.select_roi([1, 2], [2, 3])
    assert (view.shape, view.info.stride, view.device) == ((2, 3), (5, 1), tensor.device)
    for array in (view.numpy(), view.to_host().numpy(), view.to_host(True).numpy()):
        np.testing.assert_array_equal(array, values[1:3, 2:5])
    assert view.to_host(to_contiguous=True).info.stride == (3, 1)
    assert view.to_host().info.stride == (5, 1)
    corner = view.select_roi([1, 1], [1, 2])
    corner.set_zero()
    values[2, 3:5] = 0
    np.testing.assert_array_equal(tensor.numpy(), values)
    view.clone(True).copy_to(view)
    np.testing.assert_array_equal(tensor.numpy(), values)
    for start, shape in (([3, 3], [2, 2]), ([0], [1]), ([-1, 0], [1, 1]), ([0, 0], [0, 5]), ([0, 0], [1 << 62, 1])):
        with refused("ShapeError", "do not lie inside"):
            tensor.select_roi(start, shape)


@each("on_device", [False, True])
def test_c15_select_batch_is_a_view(on_device, kit):
    """Of batches; one goes on the device from the output of a module to the input of another."""
    values = np.arange(20, dtype=np.float32).reshape(4, 5)
    module = rt.load(kit.model("add_4x5"))
    module.set_input("a", values)
    tensor = module.get_dev_input("a") if on_device else rt.Tensor(module.get_input_info("a"), values)
    np.testing.assert_array_equal(tensor.select_batch([2]).numpy().reshape(-1), values[2])
    whole = tensor.select_batch([0, 1, 2, 3])
    np.testing.assert_array_equal(whole.numpy().reshape(4, 5), values)
    tensor.select_batch([1]).set_zero()
    values[1] = 0
    np.testing.assert_array_equal(whole.numpy().reshape(4, 5), values)
    other = rt.load(kit.model("add_4x5"))
    other.set_input("b", whole)
    np.testing.assert_array_equal(other.get_dev_input("b").numpy().reshape(4, 5), values)
    for batches in ([4], [-1], [0, 2], [1, 0], []):
        with refused("ShapeError", ""):
            tensor.select_batch(batches)


def test_c15_regions_go_in_and_out_of_a_module(kit):
    """What is copied may be strided on the host: inputs, outputs, and outputs that a run fills."""
    module = rt.load(kit.model("add_4x5"))
    info = module.get_input_info("a").ascontiguous()
    values = np.arange(20, dtype=np.float32).reshape(4, 5)
    wide = rt.Tensor(rt.load(kit.model("add_wide")).get_input_info("a").ascontiguous()).to_host(True)
    wide.set_zero()
    source, filled = (wide.select_roi([0, row, 3], [1, 4, 5]) for row in (0, 8))
    rt.Tensor(info, values).copy_to(source)
    module.set_input("a", source)
    module.set_input("b", values)
    module.run(True)
    np.testing.assert_array_equal(module.get_output("total", source.info).numpy().reshape(4, 5), 2 * values)
    module.set_output("total", filled)
    module.set_input("b", source)
    module.run(True)
    expected = np.zeros(wide.shape, np.float32)
    expected[0, :4, 3:8], expected[0, 8:12, 3:8] = values, 2 * values
    np.testing.assert_array_equal(wide.numpy(), expected)


def test_c16_every_tensor_the_api_returns_is_a_tensor(add):
    ran = given(add)
    device, host = ran.get_dev_output("total"), ran.get_output("total")
    made = [device, host, ran.get_output("total", host.info), ran.get_input("a"), ran.get_dev_input("a")]
    for tensor in (device, host):
        made += [tensor.to_host(), tensor.to_host(True), tensor.clone(), tensor.clone(False), rt.Tensor(tensor.info)]
        made += [tensor.select_roi([0, 0], [1, 1]), tensor.astype(np.float32), tensor.cast(np.int8)]
    assert all(type(tensor) is rt.Tensor for tensor in made)
    assert all(type(tensor.info) is rt.TensorInfo for tensor in made)
