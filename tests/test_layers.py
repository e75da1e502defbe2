"""Layers that listen to every call: how they are chosen, and what the trace says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time

import numpy as np
import pytest
import warm_python
from cpp_programs import caller

import tcim_lite.runtime as rt
from tcim_lite import clock, faults, layers
from tcim_lite.dev_ctrl import HalDeviceFactory
from tcim_lite.replay import Recording

pytestmark = pytest.mark.usefixtures("no_leftovers")


@pytest.fixture
def traced(tmp_path):
    """The lines of a JSON trace of everything the test does."""
    file = tmp_path / "trace.jsonl"
    layers.enable("trace", file=file, format="json")
    yield lambda name=None: [
        line
        for line in map(json.loads, file.read_text().splitlines())
        if name is None or (line["event"], line["name"]) == ("call", name)
    ]
    layers.disable("trace")


def test_release_of_a_manager_is_traced_by_its_vendor_name(traced):
    rt.WeightManager(0).close()
    assert len(traced("WeightManager.release")) == 1


def test_layers_are_enabled_and_ended_in_code(tmp_path):
    assert "trace" in layers.available()
    assert layers.active() == []
    layers.enable("trace", file=tmp_path / "one")
    layers.enable("trace", file=tmp_path / "two")
    assert layers.active() == ["trace"]
    rt.get_version()
    layers.disable("trace")
    layers.disable("trace")
    assert layers.active() == []
    rt.get_version()
    assert (tmp_path / "one").read_text() == ""
    assert len((tmp_path / "two").read_text().splitlines()) == 1


def test_a_recording_that_is_begun_again_replaces_its_file(tmp_path, capfd):
    for _ in range(2):
        layers.enable("record", file=tmp_path / "one")
        rt.get_version()
    layers.disable("record")
    assert os.listdir(tmp_path) == ["one"]
    assert Recording(tmp_path / "one").complete
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["link", "hard link", "relative"])
def test_a_recording_replaces_its_file_by_any_path_of_it(tmp_path, monkeypatch, capfd, kind):
    monkeypatch.chdir(tmp_path)
    layers.enable("record", file=tmp_path / "one")
    other = {"link": "two", "hard link": "three", "relative": "one"}[kind]
    if kind != "relative":
        (os.symlink if kind == "link" else os.link)(tmp_path / "one", other)
    before = os.listdir(tmp_path)
    layers.enable("record", file=other)
    rt.get_version()
    layers.disable("record")
    assert os.listdir(tmp_path) == before
    assert Recording(tmp_path / "one").complete
    assert capfd.readouterr().err == ""


def test_a_recording_is_begun_again_while_a_child_still_has_its_file(tmp_path, capfd):
    layers.enable("record", file=tmp_path / "one")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    layers.enable("record", file=tmp_path / "one")
    layers.disable("record")
    os.close(write)
    os.waitpid(child, 0)
    assert os.listdir(tmp_path) == ["one"]
    assert capfd.readouterr().err == ""


def test_a_recording_is_whole_when_it_is_ended_during_a_call(tmp_path, write_add):
    module = rt.load(write_add((1, 256, 1024)))
    layers.enable("record", file=tmp_path / "one", data="none")
    call = threading.Thread(target=module.run, args=(True, rt.RunOption(5000)))
    call.start()
    while not (tmp_path / "one").read_bytes().count(b'"round"'):
        time.sleep(0.001)
    layers.disable("record")
    assert Recording(tmp_path / "one").complete
    call.join()
    assert Recording(tmp_path / "one").complete


def test_a_clock_and_a_throttled_device_end_with_their_layers_during_a_call(write_add):
    module = rt.load(write_add((1, 256, 1024)))
    hal = HalDeviceFactory.create("xh2")
    with clock.virtual(), faults.inject(kind="throttle", clock_mhz=700):
        call = threading.Thread(target=module.run, args=(True, rt.RunOption(5000)))
        call.start()
        while hal.get_ipu_frequency(0)[1] != 700:
            time.sleep(0.001)
    assert (clock.mode(), hal.get_ipu_frequency(0)[1]) == ("off", 1400)
    call.join()
    assert (clock.mode(), hal.get_ipu_frequency(0)[1]) == ("off", 1400)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nothing", {}, "there is no layer 'nothing'; expected one of .*trace"),
        ("trace", {"color": "red"}, "no option 'color'; expected one of file, format, phases"),
        ("trace", {"format": "xml"}, "'xml': expected text, json or chrome"),
        ("trace", {"file": "/nowhere/at/all"}, "'/nowhere/at/all' cannot be opened"),
    ],
)
def test_what_cannot_be_enabled_is_named(name, options, message):
    with pytest.raises(rt.ArgumentError, match=message):
        layers.enable(name, **options)
    assert layers.active() == []


def test_calls_are_told_with_their_facts(traced, add_model):
    module = rt.load(add_model)
    module.set_input("a", np.ones((2, 3), np.float32))
    module.set_dev_input("b", module.get_dev_input("a"))
    module.run(run_option=rt.RunOption(3))
    module.sync()
    module.get_output("total")
    (load,) = traced("Module.load")
    assert load["argument"] == str(add_model)
    handle = load["module"]
    (set_input,) = traced("Module.set_input")
    assert (set_input["module"], set_input["slot"], set_input["array"]) == (handle, "a", "float32[2, 3]")
    memory = set_input["memory"]
    assert (memory["dtype"], memory["shape"], memory["bytes"], memory["device"]) == ("float16", [2, 3], 12, 0)
    (bind,) = traced("Module.set_dev_input")
    assert bind["tensor"]["buffer"] == bind["memory"]["buffer"] == memory["buffer"]
    (run,) = traced("Module.run")
    assert (run["rounds"], run["sync"]) == (3, False)
    rounds = [line for line in traced() if line["event"] == "run_begin"]
    assert len(rounds) == 3
    assert {line["module"] for line in rounds} == {handle}
    assert {line["stream"] for line in rounds} == {run["stream"]}
    assert rounds[0]["input_0"]["buffer"] == rounds[0]["input_1"]["buffer"] == memory["buffer"]
    assert rounds[0]["value_3"] == 0
    assert traced("Module.get_output")[0]["result"]["device"] == -1


def test_an_allocation_tells_its_device(traced, add_model):
    info = rt.load(add_model).get_input_info("a")
    rt.Tensor(info)
    rt.Tensor(info, np.ones((2, 3), np.float16))
    assert [line.get("device") for line in traced("Tensor.allocate")] == [0]
    assert [line.get("device") for line in traced("Tensor.from_array")] == [None]


def test_every_getter_of_a_module_is_a_call(traced, add_model):
    module = rt.load(add_model)
    getters = [name for name in dir(rt.Module) if name.startswith("get_")]
    for name in getters:
        arguments = ()
        if name.endswith("_name") and "backend" not in name:
            arguments = (0,)
        elif re.fullmatch(r"get_(dev_)?(in|out)put(_info)?", name):
            arguments = ("a" if "input" in name else "total",)
        getattr(module, name)(*arguments)
    told = {line["name"].removeprefix("Module.") for line in traced()}
    assert {name for name in getters if name != "get_input"} <= told  # another name of get_dev_input


def test_a_call_that_fails_tells_its_error(traced, add_model):
    with pytest.raises(rt.UnknownNameError):
        rt.load(add_model).set_input("c", 1)
    assert "no input is named 'c'" in traced("Module.set_input")[0]["error"]


def test_handles_are_never_used_twice(traced, add_model):
    for _ in range(3):
        rt.load(add_model).release()
    handles = [line["module"] for line in traced("Module.load")]
    assert len(set(handles)) == 3
    assert [line["module"] for line in traced("Module.delete")] == handles


def test_threads_write_whole_lines(traced, add_model):
    module = rt.load(add_model)
    threads = [threading.Thread(target=lambda: [module.get_input_info("a") for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = traced("Module.get_input_info")
    assert len(lines) == 800
    assert len({line["thread"] for line in lines}) == 4


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return warm_python.run("-c", code, env=os.environ | environment, timeout=60)


def test_the_environment_chooses_layers_at_the_first_call():
    code = "import tcim_lite.runtime as rt; print('imported', flush=True); rt.get_device_num()"
    done = run_python(code, TCIM_LITE_LAYERS=" trace,")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"tcim_lite call get_device_num call=\d+ .* value=\"1\"\n", done.stderr)


def test_the_environment_gives_a_layer_its_file(tmp_path):
    code = "import tcim_lite.runtime as rt; rt.get_device_num()"
    done = run_python(code, TCIM_LITE_LAYERS=f"trace:{tmp_path}/calls", TCIM_LITE_TRACE_FILE=str(tmp_path / "other"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "calls").read_text().startswith("tcim_lite call get_device_num ")
    assert not (tmp_path / "other").exists()
    for wrong, message in {
        "trace:": "'trace:' names no file",
        "strict:a": "no option 'file'; expected one of mode",
        f"trace:{tmp_path}/a,trace:{tmp_path}/b": "lists trace twice; expected each layer once",
    }.items():
        assert message in run_python(code, TCIM_LITE_LAYERS=wrong).stderr
    assert not (tmp_path / "a").exists()


def test_an_unknown_layer_in_the_environment_is_an_error_of_every_call():
    code = """
import tcim_lite.runtime as rt
for _ in range(2):
    try:
        rt.get_version()
    except rt.ArgumentError as error:
        print(error)
"""
    done = run_python(code, TCIM_LITE_LAYERS="trace,validate")
    assert done.stdout.splitlines() == 2 * done.stdout.splitlines()[:1]
    assert "TCIM_LITE_LAYERS: there is no layer 'validate'; expected one of " in done.stdout
    assert done.stderr == ""


def test_a_forked_child_goes_on_tracing(add_model, tmp_path):
    code = f"""
import os, tcim_lite.runtime as rt
rt.get_version()
if os.fork() == 0:
    rt.load({str(add_model)!r}).run(sync=True)
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    file = tmp_path / "trace"
    done = run_python(code, TCIM_LITE_LAYERS="trace", TCIM_LITE_TRACE_FILE=str(file))
    assert done.returncode == 0, done.stderr
    assert "call Module.run" in file.read_text()


def test_cpp_callers_are_heard_too(sdk, add_model, tmp_path):
    source = (
        '#include "tcim/tcim_runtime.h"\n'
        "int main(int, char** arguments) {\n"
        "  tcim::Module module = tcim::Module::LoadFromFile(arguments[1]);\n"
        "  return module.GetInputNum() == 4 && module.Run(true) == tcim::OK ? 0 : 1;\n}\n"
    )
    program = caller(sdk, tmp_path, source)
    environment = os.environ | {"TCIM_LITE_LAYERS": "trace"}
    done = subprocess.run([program, add_model], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    names = re.findall(r"^tcim_lite call (\S+)", done.stderr, re.MULTILINE)
    assert names == ["Module.load", "Module.get_num_inputs", "Module.run", "Module.delete"]
    environment["TCIM_LITE_LAYERS"] = f"trace:{tmp_path / 'picture.json'}"
    assert subprocess.run([program, add_model], env=environment, timeout=60).returncode == 0
    slices = [each for each in json.loads((tmp_path / "picture.json").read_text()) if each["ph"] == "X"]
    assert [each["name"] for each in slices if each["cat"] == "call"] == names
    assert len([each for each in slices if each["cat"] == "run"]) == 1
