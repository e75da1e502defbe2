"""What set_input does with host data ; C-3 to C-6 are in tcim_lite/conformance."""

from importlib import resources

import numpy as np
import pytest

import tcim_lite.runtime as rt

INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.fixture
def add(add_model):
    return rt.load(add_model)


@pytest.fixture
def attention_model():
    return resources.files("tcim_lite.conformance") / "models" / "attention_prefill.hmm"


def through(module, name, value):
    module.set_input(name, value)
    return module.get_dev_input(name).numpy()


def tensor_of(dtype, values):
    """The values as a tensor of `dtype` takes them."""
    values = np.asarray(values)
    return rt.Tensor(rt.TensorInfo(values.shape, dtype), values).numpy()


def test_every_half_survives_float32_and_ties_go_to_even():
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = tensor_of(np.float32, halves)
    np.testing.assert_array_equal(wide, halves.astype(np.float32))
    finite = np.sort(halves[np.isfinite(halves)].astype(np.float64))
    middles = (finite[1:] + finite[:-1]) / 2
    for values in (middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), middles.astype(np.float32)):
        np.testing.assert_array_equal(tensor_of(np.float16, values), values.astype(np.float16))
    assert np.isnan(tensor_of(np.float16, np.array([np.nan, np.nan], np.float32))).all()


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", [t for t in INTEGERS if np.dtype(t).itemsize < 8])
def test_integers_keep_their_value_or_are_refused(source, target):
    reinterprets = np.dtype(source).itemsize == np.dtype(target).itemsize == 1
    limits, bounds = np.iinfo(source), np.iinfo(target)
    for value in {limits.min, limits.max, 0, 1, *(v for v in (bounds.min, bounds.max, bounds.max + 1, bounds.min - 1))}:
        if not limits.min <= value <= limits.max:
            continue
        array = np.array([0, value], source)
        if bounds.min <= value <= bounds.max or reinterprets:
            np.testing.assert_array_equal(tensor_of(target, array), array.astype(target))
        else:
            with pytest.raises(rt.ArgumentError, match=rf"value {value} .* does not fit"):
                tensor_of(target, array)


def test_integer_inputs_take_whole_numbers_of_any_dtype_and_refuse_the_rest(attention_model):
    module = rt.load(attention_model)
    whole = [np.array(3, dtype) for dtype in (np.int16, np.int64, np.float16, np.float32, np.float64)]
    for value in (*whole, *(array.reshape(1) for array in whole), 3, 3.0, [3]):
        np.testing.assert_array_equal(through(module, "valid_length", 0), [0])
        np.testing.assert_array_equal(through(module, "valid_length", value), [3])
    for value in (2.5, np.float16(0.5), 2**31, -(2.0**40), np.nan, np.inf):
        hint = r": it is not whole; round first \(numpy.rint\)" if value in (2.5, 0.5) else ""
        with pytest.raises(rt.ArgumentError, match=f"does not fit int32{hint}, input 'valid_length'"):
            module.set_input("valid_length", value)
        np.testing.assert_array_equal(module.get_dev_input("valid_length").numpy(), [3])


@pytest.mark.parametrize("source", [*INTEGERS, np.bool_])
def test_integers_become_floats_rounded_once(source):
    info = np.iinfo(source) if source is not np.bool_ else None
    values = np.array([True, False] if info is None else [info.min, info.max, 0, 1, 100], source)
    if source in (np.int64, np.uint64):
        values = np.append(values, np.array([2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1], source))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(tensor_of(np.float32, values), values.astype(np.float32))
        np.testing.assert_array_equal(tensor_of(np.float16, values), values.astype(np.float64).astype(np.float16))


def test_floats_become_int8_by_rounding_and_saturating(add):
    assert through(add, "image", np.array([0.5, 1.5, -200, 1e30])).tolist() == [0, 2, -128, 127]
    with pytest.raises(rt.ArgumentError, match="value nan"):
        add.set_input("image", np.array([0, 0, 0, np.nan], np.float16))


def test_floats_become_other_integers_only_when_exact(add):
    assert through(add, "length", np.array(5.0)).tolist() == [5]
    assert tensor_of(np.uint32, np.array([4294967295.0])).tolist() == [4294967295]
    for bad in (0.5, 3e9, np.inf, np.nan):
        with pytest.raises(rt.ArgumentError, match="input 'length'"):
            add.set_input("length", np.array(bad))


@pytest.mark.parametrize("value", [None, {"a": 1}])
def test_what_is_no_array_is_named(add, value):
    with pytest.raises(
        rt.ArgumentError, match=f"input 'length': a {type(value).__name__} is no array; expected one of numpy"
    ):
        add.set_input("length", value)


def test_an_integer_that_no_type_holds_is_named_by_its_bits(add):
    with pytest.raises(rt.ArgumentError, match="input 'length': an integer of 71 bits; expected one of at most 64"):
        add.set_input("length", 2**70)


def test_equal_element_counts_are_accepted_in_any_shape(add):
    values = np.arange(6, dtype=np.float16)
    for shape in ((6,), (3, 2), (1, 6, 1)):
        np.testing.assert_array_equal(through(add, "a", values.reshape(shape)), values.reshape(2, 3))


def test_strides_and_byte_order_are_normalised(add):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    views = [base[::2, ::2], base[1:3, 4:1:-1], np.asfortranarray(base[:2, :3]), base[:2, :3].astype(">f4")]
    views += [np.broadcast_to(base[0, :3], (2, 3)), base.T[:2, :3], base.astype(np.int64)[::-2, ::-2]]
    for view in views:
        np.testing.assert_array_equal(through(add, "a", view), np.ascontiguousarray(view).astype(np.float16))


def test_strided_conversion_of_many_elements():
    rng = np.random.default_rng(3)
    base = rng.standard_normal((3, 37, 1100)).astype(np.float32)
    for view in (base[:, ::-1, 1:], base.transpose(2, 0, 1), base[:, :, ::3], base[::-1]):
        np.testing.assert_array_equal(tensor_of(np.float16, view), view.astype(np.float16))
        np.testing.assert_array_equal(tensor_of(np.float32, view), view)


def test_unaligned_arrays_are_read():
    raw = np.zeros(41, np.uint8)
    view = np.frombuffer(raw.data, np.float32, 10, offset=1)
    raw[1:] = np.arange(10, dtype=np.float32).view(np.uint8)
    np.testing.assert_array_equal(tensor_of(np.float16, view), np.arange(10, dtype=np.float16))


@pytest.mark.oracle
def test_cpu_torch_tensors_are_arrays(add):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    np.testing.assert_array_equal(through(add, "a", torch.arange(6).float()), np.arange(6).reshape(2, 3))
    with pytest.raises(rt.ArgumentError, match=r"8 bits.*convert it before, for example with tensor.float\(\)"):
        add.set_input("a", torch.zeros(6, dtype=torch.float8_e4m3fn))
    with pytest.raises(rt.ArgumentError, match=r"input 'a': a Tensor that numpy cannot read \(.*requires grad.*detach"):
        add.set_input("a", torch.zeros(6, requires_grad=True))
