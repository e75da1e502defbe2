"""tcim_lite.dev_ctrl: clocks and telemetry (C-17)."""

import threading
import time

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.dev_ctrl import DvfsMode, HalDeviceFactory, MemInfo, Status


def test_an_unused_device_is_idle_at_full_clock(hal, device):
    status, mode = hal.get_dvfs_mode(device)
    assert status == 0
    assert mode is DvfsMode.PERFORMANCE
    assert hal.get_ipu_frequency(device) == (Status.OK, 1400)
    assert hal.get_ipu_util_rate(device) == (0, 0.0)
    status, info = hal.get_mem_info(device)
    assert status == Status.OK
    assert info.mem_used == 0
    assert info.mem_total == info.mem_avail > 0


@pytest.mark.parametrize("bad", ["0", 0.0, None, True])
def test_a_device_id_is_an_int(hal, bad):
    for method in (hal.get_dvfs_mode, hal.get_mem_info, hal.ipu_reset):
        with pytest.raises(TypeError, match="expected an int"):
            method(bad)
    with pytest.raises(TypeError, match="expected an int"):
        hal.register_pre_reset_callback(bad, print)


def test_a_wrong_declaration_of_devices_is_an_error(hal, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "many")
    with pytest.raises(rt.TcimError, match="TCIM_LITE_DEVICE_NUM='many'"):
        hal.get_mem_info(0)


def test_the_dvfs_mode_is_stored_per_device(hal, device, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", str(device + 2))
    assert hal.set_dvfs_mode(device, 1) == Status.OK
    assert HalDeviceFactory.create("xh2").get_dvfs_mode(np.int64(device)) == (0, DvfsMode.ON_DEMAND)
    assert hal.get_dvfs_mode(device + 1) == (0, DvfsMode.PERFORMANCE)
    for bad in (2, -1, "fast", None):
        assert hal.set_dvfs_mode(device, bad) == Status.INVALID_ARGUMENT
    assert hal.get_dvfs_mode(device) == (0, DvfsMode.ON_DEMAND)
    assert (str(DvfsMode(0)), f"{DvfsMode(1)} {DvfsMode(1):d}") == ("DvfsMode.PERFORMANCE", "DvfsMode.ON_DEMAND 1")
    assert (DvfsMode(0), DvfsMode(1)) == (DvfsMode.PERFORMANCE, DvfsMode.ON_DEMAND)


def run_until(module, seen):
    """Runs the model on another thread, without a pause, until `seen()` is true."""
    stop = threading.Event()

    def work():
        while not stop.is_set():
            module.run(True, rt.RunOption(200))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        give_up = time.monotonic() + 60
        while not seen():
            assert time.monotonic() < give_up, "never seen while the device worked"
    finally:
        stop.set()
        thread.join()


def test_an_on_demand_clock_follows_the_load(hal, device, write_add):
    module = rt.load(write_add((1, 256, 256)), rt.Option(device))
    assert hal.get_ipu_frequency(device) == (0, 1400)
    hal.set_dvfs_mode(device, DvfsMode.ON_DEMAND)
    assert hal.get_ipu_frequency(device) == (0, 700)
    run_until(module, lambda: hal.get_ipu_frequency(device) == (0, 1400))
    assert hal.get_ipu_frequency(device) == (0, 700)
    hal.set_dvfs_mode(device, DvfsMode.PERFORMANCE)
    assert hal.get_ipu_frequency(device) == (0, 1400)


def test_utilization_is_the_busy_share_of_recent_time(hal, device, write_add):
    module = rt.load(write_add((1, 256, 256)), rt.Option(device))
    assert hal.get_ipu_util_rate(device) == (0, 0.0)
    run_until(module, lambda: hal.get_ipu_util_rate(device)[1] > 5)
    assert 0 < hal.get_ipu_util_rate(device)[1] <= 100
    assert hal.ipu_reset(device) == Status.OK
    assert hal.get_ipu_util_rate(device) == (0, 0.0)


def test_memory_comes_from_the_ledger(hal, device, tmp_path, monkeypatch, write_add):
    profile = tmp_path / "devices.ini"
    profile.write_text("[device]\n" * device + "[device]\nmemory = 64 MiB\nclocks = 900\n")
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    assert hal.get_mem_info(device) == (0, MemInfo(64, 64, 0))
    assert hal.get_ipu_frequency(device) == (0, 900)
    module = rt.load(write_add((1, 1024, 1024)), rt.Option(device))  # two inputs and an output of 4 MiB, and a bit
    status, info = hal.get_mem_info(device)
    assert status == 0
    assert info == MemInfo(64, 64 - info.mem_used, info.mem_used)
    assert 12 < info.mem_used < 20
    del module
    assert hal.get_mem_info(device) == (0, MemInfo(64, 64, 0))
