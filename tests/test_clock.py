"""Runs that take the chip's time: in a virtual clock, and in real time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_graphs import attention_graph
from warm_python import ISOLATED

import tcim_lite.runtime as rt
from tcim_lite import _core, clock, faults, hmm, layers
from tcim_lite.errors import ArgumentError, DeviceError, StateError
from tcim_lite.replay import Recording

SET_INPUT_NS = 1_000_000  # of the profile, beside the bytes


@pytest.fixture
def virtual():
    with clock.virtual():
        yield


@pytest.fixture
def attention(tmp_path):
    """A model of one attention, and what a run with so many tokens before it takes, in ns."""
    graph = attention_graph(4)
    path = tmp_path / "attention.hmm"
    hmm.write_model(path, graph, ())
    cost = [_core.graph_cost(hmm.encode_graph(graph))]
    return rt.load(path), lambda valid: round(_core.run_seconds(cost, valid) * 1e9)


def copy_ns(nbytes: int) -> int:
    return round(nbytes / 3.29)


def elapsed(call) -> int:
    begin = clock.now_ns()
    call()
    return clock.now_ns() - begin


def test_waits_take_the_modelled_time_and_asking_takes_none(virtual, add_model):
    module = rt.load(add_model)
    assert clock.now_ns() == 0
    module.run(sync=True)
    each = clock.now_ns()
    assert each == round(_core.run_seconds([_core.graph_cost(hmm.encode_graph(hmm.read(add_model).graph))], 0) * 1e9)
    for _ in range(3):
        assert elapsed(module.run) == 0
    assert elapsed(module.sync) == 3 * each
    assert elapsed(lambda: module.run(True, rt.RunOption(5))) == 5 * each
    assert clock.device_seconds(0) == pytest.approx(9 * each * 1e-9)


def test_a_run_costs_what_its_lengths_say(virtual, attention):
    module, run_ns = attention
    module.set_input("current_length", np.int32([1]))
    for valid in (0, 20):
        module.set_input("valid_length", np.int32([valid]))
        assert elapsed(lambda: module.run(sync=True)) == run_ns(valid)
    assert run_ns(20) > run_ns(0)


def test_copies_take_the_time_of_pcie(virtual, attention):
    module, _ = attention
    rows = np.zeros(module.get_input_info("input_1").shape, np.float16)
    assert elapsed(lambda: module.set_input("input_1", rows)) == SET_INPUT_NS + copy_ns(rows.nbytes)
    name = module.get_output_name(0)
    nbytes = module.get_output(name).numpy().nbytes
    assert elapsed(lambda: module.get_output(name)) == round(nbytes / 3.32)
    tensor = module.get_dev_input("input_1")
    assert elapsed(lambda: module.set_dev_input("input_1", tensor)) == 0
    assert elapsed(tensor.set_zero) == 0
    assert elapsed(tensor.to_host) == round(rows.nbytes / 3.32)


def test_reading_an_output_waits_for_the_run(virtual, attention):
    module, run_ns = attention
    module.set_input("current_length", np.int32([4]))
    module.run()
    name = module.get_output_name(0)
    assert elapsed(lambda: module.get_output(name)) > run_ns(0)


def test_streams_share_a_device_and_devices_work_at_the_same_time(virtual, add_model, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    modules = [rt.load(add_model, rt.Option(device)) for device in (0, 0, 1)]
    for module in modules:
        module.set_stream(rt.Stream())
        module.run()
    first = elapsed(modules[0].sync)
    assert first > 0
    assert elapsed(modules[2].sync) == 0  # the other device has run meanwhile
    assert elapsed(modules[1].sync) == first


def test_two_runs_of_a_program_give_equal_times_to_the_bit(attention):
    def program() -> list[int]:
        times = []
        with clock.virtual():
            streams = [rt.Stream() for _ in range(3)]
            for step in range(30):
                module, _ = attention
                module.set_stream(streams[step % 3])
                module.set_input("valid_length", np.int32([step % 20]))
                module.set_input("current_length", np.int32([1 + step % 4]))
                module.run()
                if step % 4 == 0:
                    module.get_output(module.get_output_name(0))
                clock.sleep(1e-5 * (step % 7))
                times.append(clock.now_ns())
            module.sync()
            times.append(clock.now_ns())
        return times

    first = program()
    assert len(set(first)) > 20
    assert first == program() == program()


def test_values_are_those_without_the_clock(attention):
    module, _ = attention
    module.set_input("current_length", np.int32([4]))
    module.set_input("input_1", np.ones(module.get_input_info("input_1").shape, np.float16))

    def values() -> np.ndarray:
        module.run(sync=True)
        return module.get_output(module.get_output_name(0)).numpy()

    plain = values()
    with clock.virtual():
        np.testing.assert_array_equal(values(), plain)


def test_an_error_of_a_run_is_raised_where_it_is_without_the_clock(virtual, attention):
    module, _ = attention
    module.set_input("current_length", np.int32([99]))
    module.run()
    with pytest.raises(ArgumentError, match="current"):
        module.sync()


def test_a_hang_ends_when_its_timeout_is_over_in_the_virtual_clock(virtual, add_model):
    module = rt.load(add_model)
    with faults.inject(kind="hang", timeout_s=600):
        with pytest.raises(DeviceError, match="did not answer within 600 s"):
            module.run(sync=True)
        assert clock.now_ns() == 600 * 10**9


def test_a_slow_device_is_slow_in_the_virtual_clock(virtual, add_model):
    module = rt.load(add_model)
    each = elapsed(lambda: module.run(sync=True))
    with faults.inject(kind="slow", factor=3):
        assert elapsed(lambda: module.run(sync=True)) == 3 * each
    with faults.inject(kind="slow", delay_s=2.5):
        assert elapsed(lambda: module.run(sync=True)) == each + 2_500_000_000


def test_the_server_tells_the_modelled_seconds_of_its_device(add_model):
    pytest.importorskip("prometheus_client")
    from tcim_lite.llm.engine.stats import EngineStats
    from tcim_lite.serve.metrics import Metrics

    slots = SimpleNamespace(context_length=16)
    engines = SimpleNamespace(
        stats=EngineStats(), slots=slots, waiting=0, snapshot=lambda: [{"request": None, "rows": 0}]
    )
    metrics = Metrics(engines, "m")
    assert b"modelled" not in metrics.text()
    with clock.virtual():
        rt.load(add_model).run(sync=True)
        (line,) = [line for line in metrics.text().decode().splitlines() if line.startswith("tcim:modelled_device_")]
        assert float(line.split()[1]) == clock.device_seconds() > 0


def test_realtime_takes_at_least_as_long_as_the_chip(add_model):
    module = rt.load(add_model)
    run_s = _core.run_seconds([_core.graph_cost(hmm.encode_graph(hmm.read(add_model).graph))], 0)
    with clock.realtime():
        assert clock.mode() == "realtime"
        begin = time.monotonic()
        module.run(True, rt.RunOption(2000))
        elapsed_s, modelled_s = time.monotonic() - begin, clock.device_seconds()
    assert modelled_s == pytest.approx(2000 * run_s, rel=1e-3)
    assert elapsed_s >= modelled_s


def test_the_clock_is_asked_for_by_name():
    assert clock.mode() == "off"
    assert clock.device_seconds() == 0
    with pytest.raises(StateError, match="the clock is off; set TCIM_LITE_CLOCK=virtual"):
        clock.now_ns()
    with pytest.raises(ArgumentError, match="'fast': expected off, virtual or realtime"):
        layers.enable("clock", mode="fast")
    with clock.virtual(), pytest.raises(ArgumentError, match="seconds=-1"):
        clock.sleep(-1)
    assert clock.mode() == "off"


@pytest.mark.parametrize(("value", "expected"), [("virtual", "virtual"), ("off", "off"), ("", "off"), ("x", "error")])
def test_the_environment_chooses_the_clock(value, expected):
    code = "from tcim_lite import clock\ntry:\n    print(clock.mode())\nexcept Exception as e:\n    print('error', e)"
    environment = os.environ | {"TCIM_LITE_CLOCK": value}
    done = subprocess.run(
        [sys.executable, ISOLATED, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split()[0] == expected, done


def test_a_recording_has_both_clocks(virtual, add_model, tmp_path):
    layers.enable("record", file=tmp_path / "x.tcimrec")
    module = rt.load(add_model)
    for _ in range(3):
        module.set_input("a", np.ones((2, 3), np.float32))
        module.run()
        module.sync()
        module.get_output("total").numpy()
    layers.disable("record")
    records = Recording(tmp_path / "x.tcimrec").records
    rounds = [record["modelled_ns"] for record in records if "round" in record]
    assert len(rounds) == 3
    assert sum(rounds) == round(clock.device_seconds() * 1e9)
    assert sum(record.get("modelled_ns", 0) for record in records) == clock.now_ns()
    assert all(record["ns"] >= 0 for record in records)
