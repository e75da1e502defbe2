"""Every public entry point with wrong things: an exception of the contract in the caller's words, state unchanged."""

import re

import numpy as np
import pytest

import tcim_lite.runtime as rt

EXPECTED = (TypeError, ValueError, rt.TcimError)


class Refusing:
    """Raises whatever it is asked for."""

    def __index__(self):
        raise ValueError("not an index")

    def __array__(self, *arguments, **keywords):
        raise ValueError("not an array")

    def __bool__(self):
        raise ValueError("neither true nor false")


class NotQuiteAName(str):
    __slots__ = ()


def hostile(add):
    """Name -> value; none is a right argument of any entry point below, but for the few that say so by not raising."""
    grid = np.zeros((2, 3))
    released, dummy = (rt.load(add, rt.Option().set_dummy_tensors(["a"])) for _ in range(2))
    released.release()
    return {
        "none": None,
        "true": True,
        "minus one": -1,
        "31 bits": 1 << 31,
        "63 bits": 1 << 63,
        "200 bits": 1 << 200,
        "nan": float("nan"),
        "infinity": float("inf"),
        "empty text": "",
        "unknown": "nope",
        "long text": "n" * 100_000,
        "nul": "a\0b",
        "half a surrogate": "\ud800",
        "bytes": b"zz",
        "names": ["a"],
        "list of none": [None],
        "nested": [["a"], None],
        "dict": {"a": 1},
        "set": {1},
        "generator": (i for i in range(3)),
        "refusing": Refusing(),
        "object": object(),
        "class": Refusing,
        "nothing": np.zeros(0),
        "seven": np.zeros(7),
        "objects": grid.astype(object),
        "complex": grid.astype(complex),
        "times": np.zeros((2, 3), "M8[s]"),
        "texts": np.zeros((2, 3), "U3"),
        "records": np.zeros((2, 3), [("x", "f4")]),
        "long doubles": grid.astype(np.longdouble),
        "32 axes": np.zeros((1,) * 32),
        "float64": np.float64,
        "module": dummy,
        "released module": released,
        "unbound dummy": dummy.get_dev_input("a"),
        "other info": rt.TensorInfo((7,)),
        "other tensor": rt.Tensor(rt.TensorInfo((7,))),
        "option": rt.Option(),
        "run option": rt.RunOption(),
        "stream": rt.Stream(),
        "manager": rt.WeightManager(),
    }


def entry_points(path, module):
    """Name -> (call with one argument, what it takes of the above)."""
    data = path.read_bytes()
    info = rt.TensorInfo((2, 3))
    device, host = module.get_dev_input("a"), rt.Tensor(info)
    numbers = {"true", "minus one", "31 bits", "63 bits", "200 bits"}  # true and false by Python's rules
    return {
        "load": (rt.load, set()),
        "load option": (lambda v: rt.load(path, v), {"none", "option"}),
        "load_model_info": (rt.load_model_info, set()),
        "get_device_num": (rt.get_device_num, {"empty text", "unknown", "long text", "nul", "half a surrogate"}),
        "DevManager": (rt.DevManager, set()),
        "DevManager backend": (lambda v: rt.DevManager(0, v), {"empty text"}),
        "WeightManager": (rt.WeightManager, set()),
        "Option": (rt.Option, {"none", "manager"}),
        "set_dummy_tensors": (rt.Option().set_dummy_tensors, {"names", "dict", "nothing"}),
        "model offset": (lambda v: rt.load(path, rt.Option().set_model_offset(v, len(data))), set()),
        "model size": (lambda v: rt.load(data, rt.Option().set_model_offset(0, v)), set()),
        "lazy loading": (rt.Option().enable_host_lazy_loading, numbers),
        "RunOption": (rt.RunOption, set()),
        "Stream": (rt.Stream, numbers),
        "get_input_name": (module.get_input_name, set()),
        "get_output_name": (lambda v: module.get_output_name(v), set()),
        "get_input_info": (module.get_input_info, set()),
        "get_output_info": (module.get_output_info, set()),
        "set_input": (lambda v: module.set_input("a", v), set()),
        "set_input name": (lambda v: module.set_input(v, np.zeros(6)), set()),
        "set_dev_input": (lambda v: module.set_dev_input("a", v), set()),
        "set_dev_input name": (lambda v: module.set_dev_input(v, device), set()),
        "get_input": (module.get_input, set()),
        "get_dev_input": (module.get_dev_input, set()),
        "run": (module.run, numbers),
        "run option": (lambda v: module.run(False, v), {"none", "run option"}),
        "set_stream": (module.set_stream, {"none", "stream"}),
        "get_output": (module.get_output, set()),
        "get_output info": (lambda v: module.get_output("total", v), {"none"}),
        "get_dev_output": (module.get_dev_output, set()),
        "set_dev_output": (lambda v: module.set_dev_output("total", v), set()),
        "set_dev_output name": (lambda v: module.set_dev_output(v, device), set()),
        "set_output": (lambda v: module.set_output("total", v), set()),
        "set_output name": (lambda v: module.set_output(v, host), set()),
        "TensorInfo": (rt.TensorInfo, {"set", "nothing"}),
        "TensorInfo dtype": (lambda v: rt.TensorInfo((2, 3), v), set()),
        "TensorInfo name": (lambda v: rt.TensorInfo((2, 3), "f4", v), {"empty text", "unknown", "long text", "nul"}),
        "info astype": (info.astype, set()),
        "is_match": (info.is_match, {"other info"}),
        "Tensor": (rt.Tensor, {"other info"}),
        "Tensor data": (lambda v: rt.Tensor(info, v), {"none"}),
        "to_host": (device.to_host, numbers),
        "astype": (device.astype, set()),
        "cast": (host.cast, set()),
        "cast_to": (device.cast_to, set()),
        "copy_to": (device.copy_to, set()),
        "select_roi start": (lambda v: device.select_roi(v, (1, 1)), set()),
        "select_roi shape": (lambda v: device.select_roi((0, 0), v), set()),
        "select_batch": (device.select_batch, {"set"}),
        "clone": (device.clone, numbers),
    }


def test_wrong_arguments_are_errors_of_the_contract_and_change_nothing(add_model):
    module = rt.load(add_model)
    module.set_input("a", np.arange(6))
    module.set_input("b", np.full(6, 10))
    expected = np.arange(6).reshape(2, 3) + 10
    complaints = []
    for entry, (call, takes) in entry_points(add_model, module).items():
        for name, value in hostile(add_model).items():
            if name in takes:
                call(value)
                continue
            try:
                call(value)
            except EXPECTED as error:
                text = str(error)
                # What pybind11 says when nobody has looked at the arguments before.
                if (len(text) > 700 and name != "long text") or re.search("incompatible|Invoked with", text):
                    complaints.append(f"{entry}({name}): {type(error).__name__}: {text}")
            except BaseException as error:
                complaints.append(f"{entry}({name}) raises {error!r}")
            else:
                complaints.append(f"{entry}({name}) passes")
        module.run(True)
        if not (module.get_output("total").numpy() == expected).all():
            complaints.append(f"{entry} changed something")
            module = rt.load(add_model)
    assert not complaints, "\n".join(complaints)


def test_every_method_of_a_released_module_says_so(add_model):
    module = rt.load(add_model)
    tensor, info = module.get_dev_input("a"), module.get_output_info("total")
    module.release()
    calls = {
        "get_num_inputs": (),
        "get_num_outputs": (),
        "get_input_name": (0,),
        "get_output_name": (0,),
        "get_input_info": ("a",),
        "get_output_info": ("total",),
        "get_custom_msg": (),
        "get_core_num": (),
        "get_backend_name": (),
        "get_model_version": (),
        "set_input": ("a", np.zeros(6)),
        "set_dev_input": ("a", tensor),
        "get_input": ("a",),
        "get_dev_input": ("a",),
        "get_output": ("total", info),
        "get_dev_output": ("total",),
        "set_dev_output": ("total", tensor),
        "set_output": ("total", tensor),
        "run": (),
        "sync": (),
        "set_stream": (None,),
        "taps": (),
        "get_device_ids": (),
    }
    public = {name for name in dir(rt.Module) if not name.startswith("_")}
    assert public == {*calls, "input_infos", "load", "release", "close", "destroy", "unload"}
    message = r"Status.UNINITIALIZED: the module has been released; load it again"
    for name, arguments in calls.items():
        with pytest.raises(rt.StateError, match=message):
            getattr(module, name)(*arguments)
    with pytest.raises(rt.StateError, match=message):
        _ = module.input_infos
    module.release()
    assert tensor.numpy().shape == (2, 3)  # what it gave out stays


def test_every_method_of_a_tensor_without_memory_says_what_to_do(add_model):
    tensor = rt.load(add_model, rt.Option().set_dummy_tensors(["a"])).get_dev_input("a")
    other = rt.Tensor(tensor.info)
    calls = [
        tensor.numpy,
        tensor.to_host,
        tensor.clone,
        tensor.set_zero,
        lambda: tensor.astype(np.float32),
        lambda: tensor.copy_to(other),
        lambda: other.copy_to(tensor),
        lambda: tensor.cast_to(other),
        lambda: other.cast_to(tensor),
        lambda: tensor.select_roi((0, 0), (1, 1)),
        lambda: tensor.select_batch([0]),
        lambda: np.asarray(tensor),
    ]
    for call in calls:
        with pytest.raises(rt.StateError, match=r"'a' has no memory \(an unbound dummy input\); bind or set"):
            call()


@pytest.mark.parametrize("batches", [[-1], [0, 2], [2], [], [1 << 40]])
def test_batches_outside_a_tensor_are_named(add_model, batches):
    tensor = rt.load(add_model).get_dev_input("a")
    with pytest.raises(
        rt.ShapeError, match=rf"^select_batch: batches {re.escape(str(batches))}, expected some of 0 to 1"
    ):
        tensor.select_batch(batches)


def test_messages_show_names_and_lists_that_cannot_be_read_whole(add_model):
    module = rt.load(add_model)
    with pytest.raises(rt.UnknownNameError, match=r"^Module set_input error: no input is named 'a\\x00b'; the inputs"):
        module.set_input("a\0b", np.zeros(6))
    with pytest.raises(rt.UnknownNameError, match=r"^Module get_input_info error: no input is named '\\x00'"):
        module.get_input_info("\0")
    with pytest.raises(rt.ArgumentError, match=r"a list that makes no array \(.*; expected rows of equal length"):
        module.set_input("a", [[1, 2, 3], [4, 5]])


def test_both_names_of_the_run_option_at_once_are_refused(add_model):
    with pytest.raises(TypeError, match="give one of them"):
        rt.load(add_model).run(False, run_option=rt.RunOption(1), option=rt.RunOption(2))


def test_arrays_are_not_made_without_a_copy_where_one_is_needed(add_model):
    module = rt.load(add_model)
    device, host = module.get_dev_input("a"), module.get_output("total")
    for tensor, dtype in ((device, None), (host, np.float32)):
        with pytest.raises(ValueError, match="without a copy"):
            tensor.__array__(dtype, copy=False)
    shared, copied = host.__array__(copy=False), host.__array__(copy=True)
    host.set_zero()
    shared += 1
    assert (host.numpy() == 1).all()
    assert not copied.any()
    assert np.asarray(device, dtype=np.float64).dtype == np.float64


def test_configurations_cannot_be_changed_behind_their_checks():
    manager, option = rt.DevManager([0, 1]), rt.RunOption(2)
    manager.device_ids.append("x")
    assert manager.device_ids == [0, 1]
    for item, name in ((manager, "device_ids"), (manager, "backend_name"), (option, "rounds")):
        with pytest.raises(AttributeError):
            setattr(item, name, None)
