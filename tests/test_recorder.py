"""The recorder in Python, which wraps a runtime from outside: on the emulator, and on a runtime it knows nothing of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import pytest
from recordings import PROGRAM, record
from warm_python import ISOLATED

import tcim_lite.runtime as rt
from tcim_lite.replay import Recording, RecordingError, recording_of, replay

REPLAY = Path(rt.__file__).parents[1] / "replay"

# A runtime with the vendor's names and nothing more: no constructors of infos, no ids of devices, other errors.
STRANGER = """
import numpy as np

class Info:
    def __init__(self, shape, device): self.shape, self.dtype, self.device = shape, np.float16, device

class TensorInfo: pass

class Tensor:
    def __init__(self, info, data=None): self.info, self._values = info, np.zeros(info.shape, np.float16)
    def numpy(self): return self._values.copy()
    def to_host(self, to_contiguous=False):
        made = Tensor(Info(self.info.shape, "CPU")); made._values = self._values.copy(); return made

class DevManager:
    def __init__(self, devices=0, backend_name=""): pass

class WeightManager:
    def __init__(self, device=0): pass

class Option:
    def __init__(self, weight_manager=0): pass
    def set_dummy_tensors(self, names): pass

class RunOption:
    def __init__(self, rounds=1): self.rounds = rounds

class Module:
    GAIN = 2
    def __init__(self): self._in, self._out = (Tensor(Info((2, 3), "HDPL")) for _ in range(2))
    def get_num_inputs(self): return 1
    def get_num_outputs(self): return 1
    def get_input_name(self, index): return ["x"][index]
    def get_output_name(self, index): return ["y"][index]
    def get_input_info(self, name): return self._in.info
    def get_output_info(self, name): return self._out.info
    def set_input(self, name, value):
        if name != "x": raise RuntimeError("Module set_input error")
        if isinstance(value, Tensor): self._in = value
        else: self._in._values[...] = value
    def get_dev_input(self, name): return self._in
    def run(self, sync=False, run_option=None): self._out._values = self._in._values * self.GAIN
    def sync(self): pass
    def get_output(self, name, info=None): return self._out.to_host()

def load(path, option=None): return Module()
def get_version(): return "v9"
"""
STRANGE_PROGRAM = """
import sys
import numpy as np
import stranger as rt
module = rt.load("some.hmm", rt.Option(rt.WeightManager(rt.DevManager([0]))))
module.set_input("x", np.arange(6.0).reshape(2, 3))
module.run(run_option=rt.RunOption(3))
module.sync()
try:
    module.set_input("other", 1)
except RuntimeError:
    pass
assert module.get_output("y").numpy()[1, 2] == 10
assert "tcim_lite" not in sys.modules
"""


@pytest.fixture
def script(tmp_path) -> Path:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    return tmp_path / "program.py"


@pytest.fixture
def recorded(tmp_path, script, add_model, attention_pair):
    def make(data: str) -> Recording:
        command = [sys.executable, ISOLATED, "-m", "tcim_lite.replay", tmp_path / data, "--data", data, script]
        subprocess.run([*command, add_model, *attention_pair], check=True, timeout=60, capture_output=True)
        return Recording(tmp_path / data)

    return make


@pytest.mark.parametrize("data", ["inputs", "all", "states"])
def test_what_was_recorded_from_outside_replays_bit_for_bit(recorded, data):
    recording = recorded(data)
    assert recording.complete
    done = replay(recording)
    assert (done.mismatches, done.skipped, done.notes) == ([], {}, [])
    assert done.compared >= 12 + (6 if data == "states" else 0)


def test_both_recorders_tell_the_same(recorded, tmp_path, add_model, attention_pair):
    outside = recorded("all")
    record(PROGRAM, tmp_path / "layer", add_model, *attention_pair, data="all")
    layer = Recording(tmp_path / "layer")

    def told(recording: Recording) -> list[tuple[object, ...]]:
        calls = [
            entry for entry in recording.records if entry.get("call") not in (None, "Stream.create", "Module.delete")
        ]
        return [
            (entry["call"], entry.get("name"), entry.get("out"), entry.get("array"), entry.get("rounds"))
            for entry in calls
        ]

    mine, theirs = told(outside), told(layer)
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        if one[0] == "Tensor.clone" or one == other:
            continue
        # The layer also sees what a host tensor's clone or a view's numpy() is made of; values are the same.
        assert (one[0], one[1]) == (other[0], other[1])
        assert (one[2] or other[2]) == (other[2] or one[2])
        assert one[3] == other[3]
    assert set(outside.data_hashes()) <= set(layer.data_hashes())


def test_the_runtime_is_as_before_after_the_block(tmp_path, add_model):
    before = {kind: dict(vars(kind)) for kind in (rt.Module, rt.Tensor, rt.Option, rt.WeightManager, rt.DevManager)}
    load = rt.load
    with recording_of(rt, tmp_path / "x"):
        assert rt.load is not load
        module = rt.load(add_model)
        assert isinstance(module.get_output("total"), rt.Tensor)
    assert rt.load is load
    assert before == {kind: dict(vars(kind)) for kind in before}
    module.run(sync=True)
    assert [entry["call"] for entry in Recording(tmp_path / "x").records] == ["Module.load", "Module.get_output"]
    assert Recording(tmp_path / "x").complete


def test_arrays_are_told_as_they_were_given(tmp_path, add_model):
    """The program reuses the array, and gives one that no runtime takes."""
    values = np.ones((2, 3), np.float32)
    with recording_of(rt, tmp_path / "x"):
        module = rt.load(add_model)
        module.set_input("a", values)
        values[:] = 5
        with pytest.raises(rt.ArgumentError):
            module.set_input("a", object())
        with pytest.raises(rt.UnknownNameError):
            module.set_input(name="c", value=values)
    recording = Recording(tmp_path / "x")
    _, first, wrong, named = recording.records
    assert np.frombuffer(recording.data(int(first["array"]["hash"], 16)), np.float32).tolist() == [1.0] * 6
    assert wrong["error"]["type"] == "ArgumentError"
    assert (named["name"], named["error"]["type"]) == ("c", "UnknownNameError")


def test_managers_that_were_dropped_are_not_taken_for_one_another(tmp_path, add_model, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "3")

    def load(device):  # as the vendor's demos do: nobody keeps the managers
        return rt.load(add_model, option=rt.Option(rt.WeightManager(device=rt.DevManager([device], "Xh2HalBackend"))))

    with recording_of(rt, tmp_path / "x", data="all"):
        modules = [load(device) for device in (0, 1, 2)]
        for module in modules:
            tensor = rt.Tensor(module.get_input_info("a"))
            module.set_dev_input("a", tensor)
            module.run(sync=True)
    loads = [record["load"] for record in Recording(tmp_path / "x").records if record["call"] == "Module.load"]
    assert [load["devices"] for load in loads] == [[0], [1], [2]]
    assert len({load["weights"] for load in loads}) == 3
    assert replay(tmp_path / "x").mismatches == []


def test_the_child_of_a_fork_leaves_the_recording_alone(tmp_path, add_model):
    (tmp_path / "program.py").write_text("""if True:
        import multiprocessing, os, sys
        import numpy as np
        import tcim_lite.runtime as rt

        def work(count):
            module = rt.load(sys.argv[1], rt.Option(manager))
            for _ in range(count):
                module.set_input("a", np.ones((2, 3), np.float32))

        manager = rt.WeightManager(0)
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(50,)) for _ in range(2)]
        for child in children:
            child.start()
        work(3)
        for child in children:
            child.join()
        print([child.exitcode for child in children], flush=True)
        if os.fork() == 0:
            raise SystemExit  # as a program ends, and not a worker
        os.wait()
    """)
    files = [str(tmp_path / "x"), str(tmp_path / "program.py")]
    line = [sys.executable, ISOLATED, "-W", "error", "-m", "tcim_lite.replay", *files]
    done = subprocess.run([*line, str(add_model)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[0, 0]\n", "")
    recording = Recording(tmp_path / "x")
    assert recording.complete
    assert [entry["call"] for entry in recording.records].count("Module.set_input") == 3


def test_a_copy_of_the_folder_records_and_replays_another_runtime(tmp_path):
    shutil.copytree(REPLAY, tmp_path / "replay", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "stranger.py").write_text(STRANGER)
    (tmp_path / "program.py").write_text(STRANGE_PROGRAM)
    (tmp_path / "some.hmm").write_bytes(b"closed")
    again = (
        "import sys; from replay import replay; d = replay(sys.argv[1], 'stranger'); print(d.compared, *d.mismatches)"
    )
    # A module is changed below, within the second that tells Python that a compiled one is old.
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-m", "replay", "x.tcimrec", "--data", "all", "--runtime", "stranger", "program.py")
    recording = Recording(tmp_path / "x.tcimrec")
    assert (recording.meta["runtime"], recording.meta["recorder"]) == ("v9", "python")
    assert [entry["rounds"] for entry in recording.records if entry.get("call") == "Module.run"] == [3]
    assert run("-c", again, "x.tcimrec").strip() == "3"
    (tmp_path / "stranger.py").write_text(STRANGER.replace("GAIN = 2", "GAIN = 3"))
    assert "5 of 6 elements differ, the first at [0, 1]: 3, recorded was 2" in run("-c", again, "x.tcimrec")


def test_a_runtime_that_cannot_be_wrapped_says_so(tmp_path):
    class Frozen(type):
        def __setattr__(cls, name, value):
            raise TypeError("cannot set")

    kind = Frozen("Module", (), {"run": lambda self: None})
    runtime = types.SimpleNamespace(Module=kind, Tensor=kind, load=lambda path: None, __name__="runtime")
    before = runtime.load
    with (
        pytest.raises(RecordingError, match=r"Module\.run of this runtime cannot be wrapped: cannot set"),
        recording_of(runtime, tmp_path / "x"),
    ):
        pass
    assert runtime.load is before
    with pytest.raises(RecordingError, match="data='some': expected one of none"), recording_of(rt, "x", data="some"):
        pass


def test_values_that_are_read_twice_are_those_of_each_time(tmp_path, add_model):
    ones = np.ones((2, 3), np.float32)
    with recording_of(rt, tmp_path / "x", data="all"):
        module = rt.load(add_model)
        for value in (1, 2):
            module.set_input("a", ones * value)
            module.set_input("b", ones)
            module.run(sync=True)
            total = module.get_output("total")
            assert total.numpy()[0, 0] == value + 1
        rt.Tensor(total.info, ones * 7).copy_to(total)
        assert total.numpy()[0, 0] == 7
        kept = module.get_output("total")
        rt.Tensor(total.info, ones * 8).copy_to(kept)
        assert kept.numpy()[0, 0] == 8
    recording = Recording(tmp_path / "x")
    calls = [record for record in recording.records if record["call"] in ("Module.get_output", "Tensor.numpy")]
    # An array of `total` and of `kept` was handed out before, so the program may have written there itself.
    assert ["array" in record for record in calls] == [False] * 4 + [True, False, False]
    reads = [record.get("out") or record["array"] for record in calls]
    values = [float(np.frombuffer(recording.data(int(out["hash"], 16)), out["dtype"])[0]) for out in reads]
    assert values == [2, 2, 3, 3, 7, 3, 8]
