"""Programs of every kind are recorded: in C++, forks, host memory that they write; what cannot be is an error."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import warm_python
from cpp_programs import caller
from recordings import record

from tcim_lite import layers
from tcim_lite import runtime as rt
from tcim_lite.replay import (
    Recording,
    RecordingError,
    RecordingWriter,
    recording_of,
    replay,
)

# What the program writes through arrays of host tensors is no call.
WRITES = """
    import sys
    import numpy as np
    import tcim_lite.runtime as rt
    module = rt.load(sys.argv[1])
    info = rt.TensorInfo((2, 3), np.float16)
    host, other = rt.Tensor(info), rt.Tensor(info, np.full((2, 3), 7))
    device = rt.Tensor(module.get_input_info("a"))
    for value in (1, 2, 3):
        host.numpy()[:] = value
        other.select_roi([1, 0], [1, 3]).numpy()[:] = value
        host.copy_to(device)
        module.set_input("a", device)
        module.set_input("b", other.clone() if value == 2 else other.astype(np.float32))
        module.run(sync=True)
        assert (module.get_output("total").numpy() == [[value + 7] * 3, [value * 2] * 3]).all()
"""


@pytest.mark.parametrize("data", ["inputs", "all"])
@pytest.mark.parametrize("recorder", ["layer", "python"])
def test_host_memory_that_the_program_writes_by_itself_is_recorded(tmp_path, add_model, data, recorder):
    program = WRITES
    if recorder == "layer":
        record(program, tmp_path / "writes", add_model, data=data)
    else:
        with recording_of(rt, tmp_path / "writes", data=data), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["program", str(add_model)])
            exec(compile(textwrap.dedent(program), "program", "exec"), {})
    recording = Recording(tmp_path / "writes")
    read = [entry for entry in recording.records if entry.get("call") in ("Tensor.numpy", "Tensor.copy_to")]
    assert ["array" in entry for entry in read].count(True) == 2 + 2 + 3  # the second and third arrays; copies
    assert not any("out" in entry and "array" in entry for entry in read)
    done = replay(recording)
    assert (done.mismatches, done.notes, done.skipped) == ([], [], {})
    assert done.compared >= 8


def test_device_memory_of_another_dtype_is_made_again(tmp_path, add_model):
    program = """
    import sys
    import numpy as np
    import tcim_lite.runtime as rt

    add = rt.load(sys.argv[1])
    add.set_input("a", np.arange(6.0))
    made = rt.Tensor(add.get_output_info("total").ascontiguous().astype(np.float32))  # as the vendor's demos do
    add.run(sync=True)
    add.get_dev_output("total").cast_to(made)
    print(made.numpy())
    """
    record(program, tmp_path / "x", add_model)
    done = replay(tmp_path / "x")
    assert (done.mismatches, done.notes) == ([], [])


def test_host_memory_stands_for_a_buffer_that_looks_like_no_input_or_output(tmp_path):
    with RecordingWriter(tmp_path / "x", {"data": "all"}) as writer:
        for number in (3, 4):  # MemSet of two buffers
            tensor = {"id": number, "dtype": "uint8", "shape": [1024], "device": 0}
            writer.add_record({"call": "Tensor.set_zero", "thread": 1, "self": tensor, "at": 1, "ns": 1})
    done = replay(tmp_path / "x")
    assert (done.calls, done.mismatches) == (2, [])
    assert done.notes == [
        "host memory stands for a tensor uint8 [1024] on device 0, whose shape no input or output has"
    ]


def test_a_recording_that_began_late_says_so(add_model, tmp_path):
    module = rt.load(add_model)
    layers.enable("record", file=tmp_path / "late")
    module.run(sync=True)
    layers.disable("record")
    with pytest.raises(RecordingError, match=r"was loaded before the recording began; record from the first load on"):
        replay(tmp_path / "late")


def test_a_model_from_memory_is_not_replayed(add_model, tmp_path):
    layers.enable("record", file=tmp_path / "memory")
    rt.load(add_model.read_bytes())
    layers.disable("record")
    with pytest.raises(RecordingError, match="a model that was loaded from memory; a replay needs files"):
        replay(tmp_path / "memory")


def test_cpp_programs_are_recorded_and_replayed(sdk, add_model, tmp_path):
    source = (
        '#include "tcim/tcim_runtime.h"\n'
        "int main(int, char** arguments) {\n"
        "  tcim::Module module = tcim::Module::LoadFromFile(arguments[1]);\n"
        "  float a[6] = {1, 2, 3, 4, 5, 6};\n"
        "  tcim::TensorInfo info = module.GetInputInfo(module.GetInputName(0)).AsContiguous().AsType(tcim::FLOAT32);\n"
        "  tcim::Tensor host = tcim::Tensor::CreateHostTensor(info);\n"
        "  for (int i = 0; i < 6; ++i) static_cast<float*>(host.Data())[i] = a[i];\n"
        '  if (module.SetInput("a", host) != tcim::OK) return 1;\n'
        '  if (module.SetInput("b", module.GetInput("a")) != tcim::OK) return 1;\n'
        "  if (module.Run() != tcim::OK || module.Sync() != tcim::OK) return 2;\n"
        '  tcim::Tensor total = module.GetOutput("total").AsType(tcim::FLOAT32);\n'
        "  return static_cast<const float*>(total.Data())[5] == 12.0f ? 0 : 3;\n}\n"
    )
    program = caller(sdk, tmp_path, source)
    file = tmp_path / "cpp.tcimrec"
    subprocess.run(
        [program, add_model], env=os.environ | {"TCIM_LITE_LAYERS": f"record:{file}"}, check=True, timeout=60
    )
    assert Recording(file).complete
    done = replay(file)
    assert (done.mismatches, done.skipped) == ([], {})
    assert done.compared >= 3


def test_a_fork_and_a_second_process_write_files_of_their_own(add_model, tmp_path):
    script = """
        import os, subprocess, sys, tcim_lite.runtime as rt
        rt.load(sys.argv[1]).run(sync=True)
        if os.fork() == 0:
            rt.load(sys.argv[1]).run(sync=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        code = "import tcim_lite.runtime as rt; rt.get_version()"
        subprocess.run([sys.executable, "-c", code], cwd="/", check=True)
    """
    file = tmp_path / "run"
    record(script, file, add_model)
    found = {path.name: Recording(path) for path in tmp_path.glob("run*")}
    assert len(found) == 3
    calls = sorted([entry.get("call", "round") for entry in each.records] for each in found.values())
    whole = ["Module.load", "round", "Module.run", "Module.delete"]
    assert calls == [whole, whole, ["get_version"]]
    # The fork's child ended without its exit handlers.
    assert sorted(each.complete for each in found.values()) == [False, True, True]
    for path in tmp_path.glob("run*"):
        assert replay(path).mismatches == []


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"TCIM_LITE_LAYERS": "record"}, "no file is given; write TCIM_LITE_LAYERS=record:FILE"),
        ({"TCIM_LITE_LAYERS": "record:/nowhere/at/all"}, "'/nowhere/at/all' cannot be opened"),
        ({"TCIM_LITE_LAYERS": "record:/dev/null"}, "'/dev/null' is no regular file"),
        ({"TCIM_LITE_RECORD_DATA": "some"}, "'some': expected none, inputs, outputs, all or states"),
    ],
)
def test_what_cannot_be_recorded_is_an_error_of_the_first_call(tmp_path, environment, message):
    variables = os.environ | {"TCIM_LITE_LAYERS": f"record:{tmp_path}/x"} | environment
    done = warm_python.run("-c", "import tcim_lite.runtime as rt; rt.get_version()", env=variables, timeout=60)
    assert done.returncode == 1
    assert message in done.stderr
