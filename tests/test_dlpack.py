"""Tensors and inputs over DLPack, and bfloat16 (tcim_lite/runtime/arrays.py, csrc/bindings/bind_dlpack.cpp)."""

import ctypes
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.runtime import arrays

DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.float16, np.float32]


class Wrapped:
    """An array that other libraries see through DLPack alone."""

    def __init__(self, array, **fixed):
        self.array = array
        self.fixed = fixed

    def __dlpack__(self, **arguments):
        if self.fixed.get("version_0"):
            if arguments:
                raise TypeError("__dlpack__() got an unexpected keyword argument")
            return self.array.__dlpack__()
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class CapsuleOnly:
    """What hands out a capsule that is there already."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


@pytest.fixture
def add(add_model):
    return rt.load(add_model)


def through(module, name, value):
    """What the device makes of it."""
    module.set_input(name, 0 if name == "length" else np.zeros(module.get_input_info(name).shape))
    module.set_input(name, value)
    return module.get_dev_input(name).numpy()


# -- out


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_shares_a_host_tensor_of_every_dtype(dtype):
    tensor = rt.Tensor(rt.TensorInfo((2, 3), dtype), np.arange(6))
    assert tensor.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(tensor)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3))
    array[1, 2] = 77
    assert tensor.numpy()[1, 2] == 77
    own = np.from_dlpack(tensor, copy=True)
    own[0, 0] = 5
    assert tensor.numpy()[0, 0] == 0


@pytest.mark.oracle
def test_torch_shares_a_host_tensor_and_a_strided_view_of_it():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = rt.Tensor(rt.TensorInfo((4, 6)), np.arange(24))
    view = torch.from_dlpack(tensor.select_roi((1, 2), (2, 3)))
    assert view.dtype == torch.float16
    assert view.stride() == (6, 1)
    view += 100
    np.testing.assert_array_equal(tensor.numpy()[1:3, 2:5], np.arange(24).reshape(4, 6)[1:3, 2:5] + 100)


def test_the_consumer_keeps_the_memory():
    tensor = rt.Tensor(rt.TensorInfo((1 << 18,), np.float32), np.arange(1 << 18))
    array = np.from_dlpack(tensor)
    capsule = tensor.__dlpack__(max_version=(1, 0))
    del tensor
    gc.collect()
    rt.Tensor(rt.TensorInfo((1 << 18,), np.float32), np.full(1 << 18, -1))  # would lie in memory that was freed
    np.testing.assert_array_equal(array, np.arange(1 << 18))
    np.testing.assert_array_equal(rt.from_dlpack(capsule).numpy(), array)


def test_capsules_of_both_versions_come_as_asked():
    tensor = rt.Tensor(rt.TensorInfo((3,)), np.arange(3))
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    assert name(tensor.__dlpack__()) == b"dltensor"
    assert name(tensor.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    for capsule in (tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))):
        np.testing.assert_array_equal(rt.from_dlpack(capsule).numpy(), np.arange(3))
        with pytest.raises(rt.ArgumentError, match="the capsule was used before"):
            rt.from_dlpack(capsule)


def test_a_numpy_before_2_1_exports_version_0(monkeypatch):
    """It takes no arguments but `stream`; a consumer must accept version 0 where it asked for up to 1."""

    class OldArray(np.ndarray):
        def __dlpack__(self, *, stream=None):
            return np.asarray(self).__dlpack__(stream=stream)

    monkeypatch.setattr(arrays, "_NUMPY_EXPORTS_VERSIONS", False)
    values = np.arange(3, dtype=np.float16)
    asked = {"stream": None, "dl_device": None, "max_version": (1, 0)}
    for copy in (None, True, False):
        capsule = arrays.export_dlpack(lambda: values.view(OldArray), -1, copy=copy, **asked)
        shared = np.from_dlpack(CapsuleOnly(capsule))
        assert np.shares_memory(shared, values) is not bool(copy)
        np.testing.assert_array_equal(shared, values)


def test_a_device_tensor_is_exported_as_a_host_copy_where_one_is_asked_for(add):
    add.set_input("a", np.arange(6))
    tensor = add.get_dev_input("a")
    assert tensor.__dlpack_device__() == (12, 0)
    for share in (lambda: tensor.__dlpack__(), lambda: tensor.__dlpack__(dl_device=(1, 0), copy=False)):
        with pytest.raises(BufferError, match=r"is on device 0.*from_dlpack\(tensor.to_host\(\)\)"):
            share()
    with pytest.raises(BufferError, match=r"dl_device=\(2, 0\)"):
        tensor.__dlpack__(dl_device=(2, 0))
    copy = np.from_dlpack(tensor, device="cpu")
    np.testing.assert_array_equal(copy, np.arange(6).reshape(2, 3))
    add.set_input("a", np.zeros(6))
    np.testing.assert_array_equal(copy, np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(np.from_dlpack(tensor.to_host()), np.zeros((2, 3)))


def test_later_runs_change_no_exported_array(add):
    """C-11, as for numpy()."""
    target = rt.Tensor(rt.TensorInfo((2, 3)))
    before = np.from_dlpack(target)
    add.set_output("total", target)
    add.set_input("a", np.ones(6))
    add.run(True)
    assert not before.any()
    assert target.numpy().any()


def test_a_tensor_without_memory_is_no_dlpack_array(add_model):
    module = rt.load(add_model, rt.Option(0).set_dummy_tensors(["a"]))
    tensor = module.get_dev_input("a")
    with pytest.raises(rt.StateError, match="has no memory"):
        tensor.__dlpack__(dl_device=(1, 0))


# -- in


def test_inputs_and_tensors_take_what_has_dlpack_alone(add):
    for dtype in [*DTYPES, np.int64, np.uint64, np.float64, np.bool_]:
        values = (np.arange(6) % 2).astype(dtype)
        for source in (Wrapped(values), Wrapped(values, version_0=True)):
            np.testing.assert_array_equal(through(add, "a", source), values.reshape(2, 3))
            np.testing.assert_array_equal(rt.Tensor(rt.TensorInfo((6,)), source).numpy(), values)
    assert through(add, "length", Wrapped(np.array(7))).tolist() == [7]
    with pytest.raises(rt.ShapeError, match=r"got shape \[5\]"):
        add.set_input("a", Wrapped(np.zeros(5)))


def test_strided_and_read_only_arrays_come_through(add):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    read_only = base[:2, :3].copy()
    read_only.flags.writeable = False
    for view in (base[::2, ::2], base[1:3, 4:1:-1], base.T[:2, :3], np.broadcast_to(base[0, :3], (2, 3)), read_only):
        np.testing.assert_array_equal(through(add, "a", Wrapped(view)), view)
        np.testing.assert_array_equal(rt.from_dlpack(Wrapped(view)).numpy(), view)


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_dlpack_copies_every_dtype_of_a_tensor(dtype):
    values = np.arange(6, dtype=dtype).reshape(2, 3)
    tensor = rt.from_dlpack(values)
    values[:] = 9
    assert tensor.dtype is dtype
    assert tensor.device is rt.Device.CPU
    np.testing.assert_array_equal(tensor.numpy(), np.arange(6).reshape(2, 3))


@pytest.mark.oracle
def test_torch_tensors_of_any_layout_and_dtype(add):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    whole = torch.arange(24).reshape(4, 6)
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int64):
        for view in (whole[:2, :3], whole.T[2:4, 1:4], whole[::3, ::2], whole[0, :3].expand(2, 3)):
            np.testing.assert_array_equal(through(add, "a", view.to(dtype)), view.float().numpy())
    scalar = torch.tensor(3, dtype=torch.bfloat16)
    assert through(add, "length", scalar).tolist() == [3]
    assert rt.from_dlpack(scalar).shape == ()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros(3, np.int64), "a tensor cannot be int64"),
        (np.zeros(3, bool), "a tensor cannot be bool"),
        (np.zeros(3, np.complex64), "type code 5 with 64 bits"),
        (np.zeros((2, 0), np.float32), "at least 1"),
    ],
)
def test_from_dlpack_refuses_what_no_tensor_can_be(source, message):
    with pytest.raises((rt.ArgumentError, rt.ShapeError), match=message):
        rt.from_dlpack(source)


@pytest.mark.parametrize("source", [[1, 2], None, b"dltensor", 3])
def test_from_dlpack_takes_nothing_without_the_protocol(source):
    with pytest.raises(TypeError, match=r"expected an array with __dlpack__, got \w+"):
        rt.from_dlpack(source)


def test_what_is_no_capsule_is_refused():
    class Liar:
        def __dlpack__(self, **_):
            return 7

    with pytest.raises(rt.ArgumentError, match="expected a DLPack capsule, got int"):
        rt.from_dlpack(Liar())


# -- bfloat16


def test_bfloat16_of_ml_dtypes_is_read_as_the_float32_of_the_same_value(add):
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = bits.view(ml_dtypes.bfloat16)
    wide = rt.Tensor(rt.TensorInfo(bits.shape, np.float32), values).numpy()
    np.testing.assert_array_equal(wide.view(np.uint32) >> 16, bits)
    narrow = rt.Tensor(rt.TensorInfo(bits.shape, np.float16), values).numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(narrow, values.astype(np.float32).astype(np.float16))
    strided = np.arange(12).astype(ml_dtypes.bfloat16).reshape(3, 4).T[1:3]
    np.testing.assert_array_equal(through(add, "a", strided), strided.astype(np.float16))
    assert through(add, "length", np.array(5, ml_dtypes.bfloat16)).tolist() == [5]
    with pytest.raises(rt.ArgumentError, match=r"value 2\.5 .* does not fit int32"):
        add.set_input("length", np.array(2.5, ml_dtypes.bfloat16))


def test_no_tensor_is_bfloat16():
    with pytest.raises(rt.ArgumentError, match="a tensor cannot be bfloat16"):
        rt.TensorInfo((2,), ml_dtypes.bfloat16)
    with pytest.raises(rt.ArgumentError, match=r"float8_e4m3fn cannot be converted; expected .*bfloat16"):
        rt.Tensor(rt.TensorInfo((2,)), np.zeros(2, ml_dtypes.float8_e4m3fn))


def test_what_the_exporter_holds_dies_with_the_copy(add):
    array = np.ones(6, np.float32)
    alive = weakref.ref(array)
    add.set_input("a", Wrapped(array))
    rt.from_dlpack(Wrapped(array))
    del array
    assert alive() is None


def test_an_array_that_is_not_exported_is_refused_with_the_reason(add_model):
    class Meta:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("no memory")

        def __dlpack__(self, **options):
            raise BufferError("cannot pack tensors on meta")

    with pytest.raises(TypeError, match=r"input 'a': a Meta that numpy cannot read \(cannot pack.*\); expected"):
        rt.load(add_model).set_input("a", Meta())
