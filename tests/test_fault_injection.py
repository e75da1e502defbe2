"""Fault injection: devices that are lost, hang or fail to load, what a program sees of it, and how it goes on."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from faulty_device import total

import tcim_lite.runtime as rt
from tcim_lite import conformance, faults

pytestmark = pytest.mark.usefixtures("no_faults_left")


def test_a_lost_device_fails_what_needs_it_until_it_is_reset(adder, hal, add_model):
    info = adder.get_input_info("a")
    tensor = rt.Tensor(info)
    with faults.inject(kind="device_lost", nth=2) as injected:
        assert (total(adder) == 3).all()
        adder.run()
        lost = r"device 0 is lost; reset it \(ipu_reset\) or start a new process \(injected by rules:1\)"
        with pytest.raises(rt.DeviceError, match=lost):
            adder.sync()
        for call in (
            lambda: adder.run(),
            lambda: adder.set_input("a", np.ones((2, 3), np.float32)),
            lambda: adder.get_output("total"),
            lambda: rt.load(add_model),
            lambda: rt.Tensor(info),
            lambda: tensor.numpy(),
            lambda: tensor.set_zero(),
        ):
            with pytest.raises(rt.DeviceError, match=lost):
                call()
        assert adder.get_input_info("a").shape == (2, 3)
        assert hal.get_mem_info(0)[0] == rt.Status.ERR_UNDEFINED
        assert hal.set_dvfs_mode(0, 0) == rt.Status.ERR_UNDEFINED
        assert hal.ipu_reset(0) == 0
        assert hal.get_mem_info(0)[0] == 0
        assert (total(adder) == 3).all()
    assert [(fault.kind, fault.call, fault.device) for fault in injected.fired] == [("device_lost", "execute", 0)]


def test_only_the_device_of_the_rule_is_lost(add_model, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    first, second = (rt.load(add_model, rt.Option(device)) for device in (0, 1))
    with faults.inject(kind="device_lost", device=1):
        for _ in range(3):
            first.run(True)
        for _ in range(2):
            with pytest.raises(rt.DeviceError, match="device 1 is lost"):
                second.run(True)


def test_a_model_for_several_devices_needs_all_of_them(hal, add_model, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "3")
    parts = Path(conformance.__file__).parent / "models/heads_1_1_1.hmms"
    with faults.inject(kind="device_lost", device=1, model=".hmms"):
        cut = rt.load(parts, rt.Option(rt.DevManager([0, 1, 2], "Xh2HalBackend")))
        rt.load(add_model, rt.Option(1)).run(True)
        for each in map(cut.get_input_name, range(cut.get_num_inputs())):
            info = cut.get_input_info(each)
            cut.set_input(each, np.ones(info.shape, info.dtype))
        with pytest.raises(rt.DeviceError, match="device 1 is lost"):
            cut.run(True)
        with pytest.raises(rt.DeviceError, match="device 1 is lost"):
            rt.load(parts, rt.Option(rt.DevManager([2, 0, 1], "Xh2HalBackend")))
        rt.load(add_model, rt.Option(0)).run(True)
        hal.ipu_reset(0)
        with pytest.raises(rt.DeviceError, match="device 1 is lost"):
            cut.run(True)
        hal.ipu_reset(1)
        cut.run(True)


def test_a_hanging_device_times_out_with_the_vendors_number(adder, hal):
    with faults.inject(kind="hang", timeout_s=0.2):
        adder.run()
        began = time.monotonic()
        with pytest.raises(rt.DeviceError, match=r"did not answer within 0.2 s \(ret:110\)"):
            adder.sync()
        assert 0.1 < time.monotonic() - began < 10
        with pytest.raises(rt.DeviceError, match="ret:110"):
            adder.run()
        hal.ipu_reset(0)
        assert (total(adder) == 3).all()


def test_a_reset_ends_a_hang(adder, hal):
    with faults.inject(kind="hang", timeout_s=100):
        adder.run()
        timer = threading.Timer(0.2, hal.ipu_reset, (0,))
        timer.start()
        began = time.monotonic()
        with pytest.raises(rt.DeviceError, match="ret:110"):
            adder.sync()
        timer.join()
        assert time.monotonic() - began < 20
        assert (total(adder) == 3).all()


def test_the_end_of_the_rules_ends_a_hang_under_way(add_model, run_script, monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "165")  # what is freed and read all the same is nonsense
    text = """
        import sys, time
        import tcim_lite.runtime as rt
        from tcim_lite import faults
        module = rt.load(sys.argv[1])
        for _ in range(5):
            with faults.inject(kind="hang", timeout_s=100):
                module.run()
                time.sleep(0.03)  # the worker waits for the end of the hang
            module.sync()
        print("end")
    """
    assert run_script(text, str(add_model), fresh=True) == "end"


def test_queued_work_behind_a_hang_is_lost_and_said_once(adder, add_model, hal):
    other = rt.load(add_model)
    other.set_stream(rt.Stream())
    with faults.inject(kind="hang", timeout_s=100):
        for _ in range(5):
            adder.run()
        time.sleep(0.1)
        other.run()
        hal.ipu_reset(0)
        for each in (adder, other):
            with pytest.raises(rt.DeviceError, match="ret:110"):
                each.sync()
        assert (total(adder) == 3).all()
        other.run(True)


def test_who_was_told_of_a_lost_device_hears_no_old_errors_after_a_reset(adder, hal):
    with faults.inject({"kind": "slow", "delay_s": 0.1, "times": 1}, kind="device_lost", call="Module.set_input"):
        for _ in range(3):
            adder.run()
        with pytest.raises(rt.DeviceError, match="device 0 is lost"):
            adder.set_input("a", np.ones((2, 3), np.float32))
        with pytest.raises(rt.DeviceError, match=r"Module\.sync error: device 0 is lost"):
            adder.sync()
        hal.ipu_reset(0)
        assert (total(adder) == 3).all()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"kind": "load_failure"}, r"add\.hmm' is damaged: a checksum differs"),
        ({"kind": "firmware", "version": "1.3.0"}, r"add\.hmm' needs newer firmware than v1\.3\.0 of device 0"),
    ],
)
def test_a_load_fails(add_model, rule, words):
    with faults.inject({**rule, "model": "add", "times": 2}):
        for _ in range(2):
            with pytest.raises(rt.HmmFormatError, match=words):
                rt.load(add_model)
        rt.load(add_model)
    with faults.inject({**rule, "model": "another"}) as injected:
        rt.load(add_model)
    assert injected.unfired == [{**rule, "model": "another"}]


def test_a_reset_during_a_run_fails_that_run_only(adder):
    with faults.inject(kind="reset", nth=2):
        assert (total(adder) == 3).all()
        adder.run()
        with pytest.raises(rt.DeviceError, match="device 0 was reset meanwhile; run again"):
            adder.sync()
        assert (total(adder) == 3).all()


def test_a_flaky_sync_loses_no_work(adder):
    with faults.inject(kind="flaky_sync", times=2):
        adder.run()
        for _ in range(2):
            with pytest.raises(rt.DeviceError, match="the wait for device 0 failed; sync again"):
                adder.sync()
        adder.sync()
        assert (adder.get_output("total").numpy() == 3).all()


def test_a_forked_child_has_a_working_device_and_counts_anew(adder):
    with faults.inject(kind="device_lost", call="Module.run", nth=2):
        adder.run(True)
        with pytest.raises(rt.DeviceError):
            adder.run(True)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                adder.run(True)
                try:
                    adder.run(True)
                except rt.DeviceError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
