"""What load and the options take, and how a mistake in it is named."""

import array
import copy
import json
import mmap
import os
import shutil

import numpy as np
import pytest

import tcim_lite
import tcim_lite.runtime as rt


def test_models_load_from_anything_with_a_buffer(tmp_path, linear_bytes, reference_weight):
    (tmp_path / "model.hmm").write_bytes(linear_bytes)
    with (
        open(tmp_path / "model.hmm", "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        for source in (mapped, np.frombuffer(linear_bytes, np.uint8), array.array("B", linear_bytes)):
            module = rt.load(source)
            module.set_input("x", np.ones((1, 4, 8)))
            module.run()
            np.testing.assert_allclose(module.get_output("y").numpy()[0, 3], reference_weight.sum(1), rtol=1e-5)
    for bad in (None, 5):
        with pytest.raises(TypeError, match="expected a str, a path or the bytes of a model"):
            rt.load(bad)
    with pytest.raises(TypeError, match=r"bytes are taken as a model, not as its path; give os.fsdecode\(path\)"):
        rt.load(os.fsencode(tmp_path / "model.hmm"))
    for bad in (None, 5, linear_bytes):
        with pytest.raises(TypeError, match=r"path=.*: expected a str or a path"):
            rt.load_model_info(bad)


def test_programs_hang_what_they_like_on_a_module(add_model):
    module = rt.load(add_model)
    calls = []
    module.name, inner = "add", module.run
    module.run = lambda *args: (calls.append(args), inner(*args))
    module.run(True)
    assert (calls, copy.copy(module).name, module.get_output_name(0)) == ([(True,)], "add", "total")


def test_paths_are_taken_as_the_system_names_files(tmp_path, add_model):
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/\xff \xe6\xa8\xa1.hmm")
    shutil.copy(add_model, strange)
    assert rt.load(strange).get_num_inputs() == 4
    assert json.loads(rt.load_model_info(strange))["info"]["name"] == "add"
    with pytest.raises(rt.HmmFormatError, match=r"\\xff.*cannot be read"):
        rt.load(strange + "x")
    for call in (rt.load, rt.load_model_info):
        with pytest.raises(rt.HmmFormatError, match="NUL"):
            call(f"{add_model}\0.hmm")
        with pytest.raises(rt.HmmFormatError, match="path is empty"):
            call("")


def test_bad_option_arguments_are_named(add_model):
    for bad in (("0", 1), (0.5, 1), (0, None)):
        with pytest.raises(TypeError, match=r"set_model_offset: .*expected an int"):
            rt.Option().set_model_offset(*bad)
    module = rt.load(add_model)
    for index in (False, np.False_):
        with pytest.raises(TypeError, match=r"get_input_name: expected an int, got .*False"):
            module.get_input_name(index)
    assert module.get_input_name(np.uint8(0)) == module.get_input_name(0)
    for bad in (1 << 40, [0, 1 << 31]):
        with pytest.raises(ValueError, match="fit 31 bits"):
            rt.DevManager(bad)
    for bad in (None, 5, b"ab"):
        with pytest.raises(TypeError, match="expected a list of names"):
            rt.Option().set_dummy_tensors(bad)
        with pytest.raises(TypeError, match="expected a str"):
            rt.get_device_num(bad)
    assert rt.Option(weight_manager=rt.WeightManager(0))


def test_a_run_option_or_device_manager_in_the_wrong_place_shows_the_right_call(add_model):
    module = rt.load(add_model)
    with pytest.raises(TypeError, match=r"write run\(run_option=RunOption\(5\)\)"):
        module.run(rt.RunOption(5))
    with pytest.raises(TypeError, match=r"write load\(path, Option\(DevManager\(\[0\]"):
        rt.load(add_model, rt.DevManager([0]))
    with pytest.raises(TypeError, match=r"write load\(path, Option\(WeightManager"):
        rt.load(add_model, rt.WeightManager(0))
    with pytest.raises(TypeError, match=r"write load\(path, Option\(1\)\)"):
        rt.load(add_model, 1)


def test_a_call_with_the_wrong_object_says_what_to_do(add_model):
    module = rt.load(add_model)
    values = np.zeros((2, 3), np.float16)
    for call, words in (
        (lambda: rt.Module(add_model, rt.Option()), r"a Module is made by tcim_lite\.runtime\.load"),
        (lambda: rt.Tensor(values), r"Tensor: .*TensorInfo, got ndarray; .*Tensor\(info, data\)"),
        (lambda: module.get_output("total", np.float32), r"get_output: .*get_output_info\(name\)\.astype\(dtype\)"),
        (lambda: module.set_dev_input("a", values), "set_dev_input: .*got ndarray; set_input copies host data"),
        (lambda: module.set_dev_output("total", values), r"set_dev_output: .*Tensor\(get_output_info\(name\)\)"),
        (lambda: module.set_output("total", values), r"set_output: .*Tensor\(get_output_info\(name\)\)"),
        (lambda: module.get_output("total").copy_to(values), r"copy_to: .*numpy\(\) makes an array"),
    ):
        with pytest.raises(TypeError, match=words):
            call()


def test_a_name_of_the_runtime_that_is_asked_of_the_package_is_found():
    with pytest.raises(AttributeError, match=r"has no attribute 'load'; write tcim_lite\.runtime\.load"):
        tcim_lite.load  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'lode'$"):
        tcim_lite.lode  # noqa: B018


def test_the_package_names_the_class_of_modules_too(add_model):
    """Which the vendor's check of golden files writes in annotations: they are evaluated when it is imported."""
    assert tcim_lite.Module is rt.Module
    assert isinstance(rt.load(add_model), tcim_lite.Module)
    assert "Module" in dir(tcim_lite)


def test_enumerations_print_their_names(add_model):
    info = rt.load(add_model).get_input_info("a")
    assert f"{info.format} {info.device}" == "DataFmt.ND Device.HDPL"
    assert (str(info.format), info.format == 0, f"{info.format:d}") == ("DataFmt.ND", True, "0")


def test_modules_and_options_print_what_they_are(add_model):
    option = rt.Option(rt.WeightManager(0)).set_dummy_tensors(["a"]).set_model_offset(3, 9)
    assert repr(option) == "Option(WeightManager(DevManager([0], '')), dummies=['a'], offset=3, size=9)"
    module = rt.load(add_model)
    names = [module.get_input_name(index) for index in range(module.get_num_inputs())]
    assert repr(module) == f"<Module on {module.get_backend_name()}: inputs [{', '.join(names)}], outputs [total]>"
    module.release()
    assert repr(module)
    assert repr(rt.Module.__new__(rt.Module)) == "<Module without a model>"
