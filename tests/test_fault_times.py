"""Fault injection: slow and throttled devices, and rules that wait for their time."""

from __future__ import annotations

import contextlib
import os
import time

import pytest
from faulty_device import total

import tcim_lite.runtime as rt
from tcim_lite import _core, clock, faults

pytestmark = pytest.mark.usefixtures("no_faults_left")


def test_a_slow_device_takes_longer_and_is_busy(adder, hal):
    with faults.inject(kind="slow", delay_s=0.2):
        began = time.monotonic()
        assert (total(adder) == 3).all()
        assert time.monotonic() - began >= 0.2
        assert hal.get_ipu_util_rate(0)[1] > 10
    with faults.inject(kind="slow", call="Module.get_output", delay_s=0.2):
        began = time.monotonic()
        assert (total(adder) == 3).all()
        assert time.monotonic() - began >= 0.2


def test_a_slow_device_takes_so_many_times_longer(write_add, tmp_path):
    slow = rt.load(write_add((256, 4096)))
    slow.run(True)

    def seconds() -> float:
        began = time.perf_counter()
        for _ in range(5):
            slow.run(True)
        return time.perf_counter() - began

    least = min(seconds() for _ in range(3))
    with faults.inject(kind="slow", factor=50):
        assert seconds() > 5 * least


def test_a_throttled_device_shows_its_clock_and_is_slower(adder, hal):
    with faults.inject(kind="throttle", clock_mhz=350):
        assert hal.get_ipu_frequency(0) == (0, 1400)
        assert (total(adder) == 3).all()
        assert hal.get_ipu_frequency(0) == (0, 350)
        assert {350} == {
            seen.clock_mhz for seen in _core.process_usage() if (seen.pid, seen.device_id) == (os.getpid(), 0)
        }
        hal.ipu_reset(0)
        assert hal.get_ipu_frequency(0) == (0, 1400)
    with faults.inject(kind="throttle", clock_mhz=350, lasts_s=0.2):
        began = time.monotonic()
        adder.run(True)
        assert hal.get_ipu_frequency(0) == (0, 350) or time.monotonic() - began >= 0.2
        time.sleep(0.3)
        assert hal.get_ipu_frequency(0) == (0, 1400)
    with faults.inject(kind="throttle", clock_mhz=350):
        adder.run(True)
    assert hal.get_ipu_frequency(0) == (0, 1400)


def test_rules_wait_for_their_time(adder):
    began = time.monotonic()
    with faults.inject(kind="flaky_sync", after_s=0.3, times=0) as injected:
        try:
            total(adder)
        except rt.DeviceError:
            assert time.monotonic() - began >= 0.3
        time.sleep(0.4)
        with pytest.raises(rt.DeviceError):
            adder.sync()
    with faults.inject(kind="flaky_sync", before_s=0.3, times=0) as injected:
        time.sleep(0.4)
        total(adder)
    assert injected.unfired == [{"kind": "flaky_sync", "before_s": 0.3, "times": 0}]


def test_rules_wait_for_their_time_where_a_virtual_clock_begins_and_ends(adder):
    def is_due() -> bool:
        try:
            adder.sync()
        except rt.DeviceError:
            return True
        return False

    with faults.inject(kind="flaky_sync", after_s=50, times=0):
        with clock.virtual():
            clock.sleep(49)
            assert not is_due()
            clock.sleep(1)
            assert is_due()
        assert is_due()
    with contextlib.ExitStack() as stack:
        with clock.virtual():
            clock.sleep(1000)
            stack.enter_context(faults.inject(kind="flaky_sync", after_s=50, times=0))
            clock.sleep(40)
        assert not is_due()
        with clock.virtual():
            assert not is_due()
            clock.sleep(10)
            assert is_due()


def test_a_hang_ends_in_a_virtual_clock_that_begins_meanwhile(adder):
    with faults.inject(kind="hang", timeout_s=30) as injected:
        adder.run()
        while not injected.fired:
            time.sleep(0.01)
        with clock.virtual():
            with pytest.raises(rt.DeviceError, match="ret:110"):
                adder.sync()
            assert 29 < clock.now_ns() / 1e9 < 30
