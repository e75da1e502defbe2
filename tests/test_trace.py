"""The picture of a program over time (`trace:FILE.json`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import defaultdict

import numpy as np
import pytest
import warm_python
from tiny_graphs import attention_graph
from traces import checked, slices
from warm_python import ISOLATED

import tcim_lite.runtime as rt
from tcim_lite import faults, hmm, layers
from tcim_lite.errors import ArgumentError, DeviceError

pytestmark = pytest.mark.usefixtures("no_leftovers")


@pytest.fixture
def traced(tmp_path):
    """The events of what the test does."""
    file = tmp_path / "trace.json"
    layers.enable("trace", file=file)
    yield lambda: checked(file)
    layers.disable("trace")


@pytest.fixture
def attention(tmp_path):
    path = tmp_path / "attention.hmm"
    hmm.write_model(path, attention_graph(4), ())
    return path


def test_calls_runs_copies_caches_and_memory_are_there(traced, attention):
    module = rt.load(attention)
    module.set_input("current_length", np.int32([4]))
    for valid in (0, 4):
        module.set_input("valid_length", np.int32([valid]))
        module.run()
    module.sync()
    module.get_output(module.get_output_name(0))
    del module
    rt.get_version()  # sees that the memory is free
    events = traced()
    calls = [event["name"] for event in slices(events, "call")]
    assert calls[0] == "Module.load"
    assert calls.count("Module.run") == 2
    assert {event["tid"] for event in slices(events, "call")} == {threading.get_native_id()}
    runs = slices(events, "run")
    assert [event["name"] for event in runs] == ["attention.hmm"] * 2
    assert all(event["args"]["modelled_ms"] > 0 for event in runs)
    modelled = slices(events, "modelled")
    assert [event["name"] for event in modelled].count("attention.hmm") == 2
    assert [event["args"]["bytes"] for event in modelled if event["name"] == "to device"] == [4, 4, 4]
    assert len([event for event in modelled if event["name"] == "to host"]) == 1
    rows = [event["args"]["slot 0"] for event in events if event["name"].startswith("cache rows live, attention.hmm")]
    assert rows == [4, 8]
    memory = [event["args"] for event in events if event["name"] == "memory of device 0"]
    holder = next(name for name in memory[0] if name.startswith("tensors of") and name.endswith("attention.hmm"))
    assert memory[0][holder] > 0
    assert memory[-1][holder] == 0  # when the module has gone
    lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"device 0 (modelled)", "PCIe (modelled)"} < lanes
    assert any(lane.startswith("stream ") for lane in lanes)


def test_an_arrow_leads_from_each_call_to_its_first_round(traced, add_model):
    module = rt.load(add_model)
    module.run(run_option=rt.RunOption(3))
    module.run()
    module.sync()
    events = traced()
    assert len(slices(events, "run")) == 4
    starts = [event["ts"] for event in events if event["ph"] == "s"]
    calls = [event["ts"] for event in slices(events, "call") if event["name"] == "Module.run"]
    assert len(starts) == 2
    assert starts == pytest.approx(calls, abs=0.002)
    finishes = [event["ts"] for event in events if event["ph"] == "f"]
    runs = [event["ts"] for event in slices(events, "run")]
    assert finishes == pytest.approx([runs[0], runs[3]], abs=0.002)


def test_a_run_that_was_refused_has_no_arrow_and_later_ones_have_their_own(traced, attention):
    module = rt.load(attention)
    with pytest.raises(ArgumentError):
        module.run(True, rt.RunOption(2))  # current_length is 0
    module.set_input("current_length", np.int32([1]))
    module.run(sync=True)
    with faults.inject(kind="device_lost", call="Module.run"), pytest.raises(DeviceError):
        module.run(sync=True)
    events = traced()
    runs = slices(events, "run")
    assert ["error" in event["args"] for event in runs] == [True, False]
    assert len([event for event in events if event["ph"] == "f"]) == 2
    assert len([event for event in slices(events, "call") if "error" in event["args"]]) == 2


def test_streams_and_threads_have_lanes_of_their_own(traced, add_model):
    modules = [rt.load(add_model) for _ in range(3)]

    def work(module: rt.Module) -> None:
        module.set_stream(rt.Stream())
        for _ in range(20):
            module.run()
        module.sync()

    threads = [threading.Thread(target=work, args=(module,)) for module in modules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = traced()
    assert len({event["tid"] for event in slices(events, "run")}) == 3
    assert len({event["tid"] for event in slices(events, "call")}) == 4
    assert len([event for event in events if event["ph"] == "s"]) == 60


@pytest.mark.parametrize("phases", ["none", "layers", "ops"])
def test_phases_of_a_run_are_shown_when_asked_for(tmp_path, phases):
    import tcim_lite.conformance

    folder = os.path.dirname(tcim_lite.conformance.__file__)
    layers.enable("trace", file=tmp_path / "t.json", phases=phases)
    try:
        module = rt.load(f"{folder}/models/llm_decode.hmm")
        module.set_input("current_length", np.int32([1]))
        module.run(True, rt.RunOption(2))
    finally:
        layers.disable("trace")
    events = checked(tmp_path / "t.json")
    groups, ops = slices(events, "layer"), slices(events, "op")
    assert (len(groups) > 0, len(ops) > 0) == (phases != "none", phases == "ops")
    if phases == "none":
        return
    names = [event["name"] for event in groups]
    half = len(names) // 2
    assert names[:half] == names[half:]
    assert len(set(names)) == half
    if phases == "ops":
        kinds = {event["name"].split()[0] for event in ops}
        assert {"Linear", "Attention"} <= kinds


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    done = warm_python.run("-c", code, env=os.environ | environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def test_processes_share_a_file_and_it_is_whole_however_they_end(tmp_path, add_model):
    file = tmp_path / "all.json"
    code = f"""
import os, signal
import tcim_lite.runtime as rt
managers = rt.WeightManager(0)
rt.get_version()  # opens the file, which the children inherit
children = []
for end in ("exit", "exit", "exit", "kill"):
    child = os.fork()
    if child == 0:
        module = rt.load({str(add_model)!r}, rt.Option(managers))
        for _ in range(300):
            module.run(sync=True)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
rt.load({str(add_model)!r}).run(sync=True)
"""
    run_python(code, TCIM_LITE_LAYERS=f"trace:{file}")
    run_python(
        f"import tcim_lite.runtime as rt\nrt.load({str(add_model)!r}).run(sync=True)", TCIM_LITE_LAYERS=f"trace:{file}"
    )
    events = checked(file)
    by_process = defaultdict(int)
    for event in slices(events, "run"):
        by_process[event["pid"]] += 1
    assert sorted(by_process.values()) == [1, 1, 300, 300, 300, 300]


def test_a_file_that_is_no_trace_is_refused_and_kept(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('{"mine": 1}\n')
    with pytest.raises(ArgumentError, match=r"mine.json': it holds something that is no trace; delete it"):
        layers.enable("trace", file=file)
    assert file.read_text() == '{"mine": 1}\n'
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ArgumentError, match="no regular file"):
        layers.enable("trace", file=tmp_path / "pipe.json")
    with pytest.raises(ArgumentError, match="cannot be opened"):
        layers.enable("trace", file="/nowhere/at/all.json")
    with pytest.raises(ArgumentError, match="TCIM_LITE_TRACE_PHASES='steps': expected none, layers or ops"):
        layers.enable("trace", file=tmp_path / "t.json", phases="steps")
    with pytest.raises(ArgumentError, match="the format chrome needs a file"):
        layers.enable("trace", format="chrome")


def test_a_file_that_breaks_meanwhile_loses_events_and_says_so_once(tmp_path, capfd):
    file = tmp_path / "t.json"
    layers.enable("trace", file=file)
    try:
        file.write_text("not a trace any more, and long enough")
        for _ in range(3):
            rt.get_version()
    finally:
        layers.disable("trace")
    assert capfd.readouterr().err.count("events are lost") == 1


def test_other_formats_stay_what_they_are(tmp_path):
    layers.enable("trace", file=tmp_path / "t.json", format="json")
    rt.get_version()
    layers.disable("trace")
    assert json.loads((tmp_path / "t.json").read_text())["event"] == "call"


def test_a_program_whose_locale_writes_commas_writes_json(tmp_path, add_model):
    locales = tmp_path / "locales"
    locales.mkdir()
    made = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(locales / "de_DE.UTF-8")]
    if shutil.which("localedef") is None or subprocess.run(made, capture_output=True, check=False).returncode != 0:
        pytest.skip("no localedef, or no sources of locales")
    program = f"""
import locale
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
import tcim_lite.runtime as rt
rt.load({str(add_model)!r}).run(True)
"""
    file = tmp_path / "trace.json"
    environment = os.environ | {"LOCPATH": str(locales), "TCIM_LITE_LAYERS": f"trace:{file}"}
    subprocess.run([sys.executable, ISOLATED, "-c", program], env=environment, check=True, timeout=60)
    assert [event["name"] for event in slices(checked(file), "run")] == ["add.hmm"]
