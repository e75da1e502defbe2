"""Fault injection: every kind of fault, what a program sees of it, and how it goes on."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import _core, clock, conformance, faults, layers


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    layers.disable("faults")


@pytest.fixture
def module(add_model):
    """total = a + b; a is ones, b is twos."""
    loaded = rt.load(add_model)
    loaded.set_input("a", np.ones((2, 3), np.float32))
    loaded.set_input("b", np.full((2, 3), 2, np.float32))
    return loaded


def total(module) -> np.ndarray:
    module.run()
    module.sync()
    return module.get_output("total").numpy()


def test_a_lost_device_fails_what_needs_it_until_it_is_reset(module, hal, add_model):
    info = module.get_input_info("a")
    tensor = rt.Tensor(info)
    with faults.inject(kind="device_lost", nth=2) as injected:
        assert (total(module) == 3).all()
        module.run()
        lost = r"device 0 is lost; reset it \(ipu_reset\) or start a new process \(injected by rules:1\)"
        with pytest.raises(rt.DeviceError, match=lost):
            module.sync()
        for call in (
            lambda: module.run(),
            lambda: module.set_input("a", np.ones((2, 3), np.float32)),
            lambda: module.get_output("total"),
            lambda: rt.load(add_model),
            lambda: rt.Tensor(info),
            lambda: tensor.numpy(),
            lambda: tensor.set_zero(),
        ):
            with pytest.raises(rt.DeviceError, match=lost):
                call()
        assert module.get_input_info("a").shape == (2, 3)
        assert hal.get_mem_info(0)[0] == rt.Status.ERR_UNDEFINED
        assert hal.set_dvfs_mode(0, 0) == rt.Status.ERR_UNDEFINED
        assert hal.ipu_reset(0) == 0
        assert hal.get_mem_info(0)[0] == 0
        assert (total(module) == 3).all()
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


def test_a_hanging_device_times_out_with_the_vendors_number(module, hal):
    with faults.inject(kind="hang", timeout_s=0.2):
        module.run()
        began = time.monotonic()
        with pytest.raises(rt.DeviceError, match=r"did not answer within 0.2 s \(ret:110\)"):
            module.sync()
        assert 0.1 < time.monotonic() - began < 10
        with pytest.raises(rt.DeviceError, match="ret:110"):
            module.run()
        hal.ipu_reset(0)
        assert (total(module) == 3).all()


def test_a_reset_ends_a_hang(module, hal):
    with faults.inject(kind="hang", timeout_s=100):
        module.run()
        timer = threading.Timer(0.2, hal.ipu_reset, (0,))
        timer.start()
        began = time.monotonic()
        with pytest.raises(rt.DeviceError, match="ret:110"):
            module.sync()
        timer.join()
        assert time.monotonic() - began < 20
        assert (total(module) == 3).all()


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


def test_queued_work_behind_a_hang_is_lost_and_said_once(module, add_model, hal):
    other = rt.load(add_model)
    other.set_stream(rt.Stream())
    with faults.inject(kind="hang", timeout_s=100):
        for _ in range(5):
            module.run()
        time.sleep(0.1)
        other.run()
        hal.ipu_reset(0)
        for each in (module, other):
            with pytest.raises(rt.DeviceError, match="ret:110"):
                each.sync()
        assert (total(module) == 3).all()
        other.run(True)


def test_who_was_told_of_a_lost_device_hears_no_old_errors_after_a_reset(module, hal):
    with faults.inject({"kind": "slow", "delay_s": 0.1, "times": 1}, kind="device_lost", call="Module.set_input"):
        for _ in range(3):
            module.run()
        with pytest.raises(rt.DeviceError, match="device 0 is lost"):
            module.set_input("a", np.ones((2, 3), np.float32))
        with pytest.raises(rt.DeviceError, match=r"Module\.sync error: device 0 is lost"):
            module.sync()
        hal.ipu_reset(0)
        assert (total(module) == 3).all()


def test_the_nth_load_has_no_memory(add_model):
    with faults.inject(kind="out_of_memory", nth=2):
        first = rt.load(add_model)
        with pytest.raises(rt.DeviceError, match="device 0 is out of memory; free modules or tensors"):
            rt.load(add_model)
        second = rt.load(add_model)
    first.run(True)
    second.run(True)


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


def test_a_slow_device_takes_longer_and_is_busy(module, hal):
    with faults.inject(kind="slow", delay_s=0.2):
        began = time.monotonic()
        assert (total(module) == 3).all()
        assert time.monotonic() - began >= 0.2
        assert hal.get_ipu_util_rate(0)[1] > 10
    with faults.inject(kind="slow", call="Module.get_output", delay_s=0.2):
        began = time.monotonic()
        assert (total(module) == 3).all()
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


def test_a_throttled_device_shows_its_clock_and_is_slower(module, hal):
    with faults.inject(kind="throttle", clock_mhz=350):
        assert hal.get_ipu_frequency(0) == (0, 1400)
        assert (total(module) == 3).all()
        assert hal.get_ipu_frequency(0) == (0, 350)
        assert {350} == {
            seen.clock_mhz for seen in _core.process_usage() if (seen.pid, seen.device_id) == (os.getpid(), 0)
        }
        hal.ipu_reset(0)
        assert hal.get_ipu_frequency(0) == (0, 1400)
    with faults.inject(kind="throttle", clock_mhz=350, lasts_s=0.2):
        began = time.monotonic()
        module.run(True)
        assert hal.get_ipu_frequency(0) == (0, 350) or time.monotonic() - began >= 0.2
        time.sleep(0.3)
        assert hal.get_ipu_frequency(0) == (0, 1400)
    with faults.inject(kind="throttle", clock_mhz=350):
        module.run(True)
    assert hal.get_ipu_frequency(0) == (0, 1400)


def test_one_bit_of_an_output_is_flipped_in_one_run(module):
    with faults.inject(kind="bit_flip", output="total", byte=3, bit=7, nth=2) as injected:
        assert (total(module) == 3).all()
        found = total(module)
        assert found[0, 1] == -3
        assert (np.delete(found, 1) == 3).all()
        assert (total(module) == 3).all()
    assert "bit 7 of byte 3 of output 'total' was flipped" in injected.fired[0].text


def test_one_bit_of_an_input_stays_flipped_until_it_is_set(module):
    with faults.inject(kind="bit_flip", input="a", byte=1, bit=7):
        assert total(module)[0, 0] == 1
        assert total(module)[0, 0] == 1
    module.set_input("a", np.ones((2, 3), np.float32))
    assert (total(module) == 3).all()


def test_which_bit_is_flipped_depends_on_the_seed_alone(module):
    def texts(seed: int) -> list[str]:
        with faults.inject(kind="bit_flip", output="total", probability=0.5, seed=seed) as injected:
            for _ in range(20):
                total(module)
        return [fault.text for fault in injected.fired]

    first = texts(1)
    assert 3 < len(first) < 17
    assert len(set(first)) > 2
    assert texts(1) == first
    assert texts(2) != first


def test_one_bit_of_a_weight_is_flipped_in_memory_alone_and_a_reset_restores_it(linear_pair, hal):
    before = linear_pair[0].with_name("linear.hmw").read_bytes()
    x = np.ones((1, 4, 8), np.float32)

    def load(path):
        loaded = rt.load(path)
        loaded.set_input("x", x)
        return loaded

    def answer(module) -> np.ndarray:
        module.run(True)
        return module.get_output("y").numpy()

    good = answer(load(linear_pair[0]))
    with faults.inject(kind="bit_flip", weight="w", byte=3, bit=6) as injected:
        module = load(linear_pair[0])
        bad = answer(module)
        assert (bad != good).any()
        np.testing.assert_array_equal(answer(module), bad)
        hal.ipu_reset(0)
        np.testing.assert_array_equal(answer(module), good)
    assert "bit 6 of byte 3 of weight 'w' was flipped" in injected.fired[0].text
    with faults.inject(kind="bit_flip", weight="w", call="execute", byte=3, bit=6, nth=2):
        np.testing.assert_array_equal(answer(module), good)
        np.testing.assert_array_equal(answer(module), bad)
    np.testing.assert_array_equal(answer(module), good)
    assert linear_pair[0].with_name("linear.hmw").read_bytes() == before


def test_a_byte_outside_of_the_tensor_is_said(module):
    with faults.inject(kind="bit_flip", output="total", byte=12) as injected:
        assert (total(module) == 3).all()
    assert "output 'total' has 12 bytes and no byte 12; nothing was flipped" in injected.fired[0].text


def test_a_reset_during_a_run_fails_that_run_only(module):
    with faults.inject(kind="reset", nth=2):
        assert (total(module) == 3).all()
        module.run()
        with pytest.raises(rt.DeviceError, match="device 0 was reset meanwhile; run again"):
            module.sync()
        assert (total(module) == 3).all()


def test_a_flaky_sync_loses_no_work(module):
    with faults.inject(kind="flaky_sync", times=2):
        module.run()
        for _ in range(2):
            with pytest.raises(rt.DeviceError, match="the wait for device 0 failed; sync again"):
                module.sync()
        module.sync()
        assert (module.get_output("total").numpy() == 3).all()


def test_rules_wait_for_their_time(module):
    began = time.monotonic()
    with faults.inject(kind="flaky_sync", after_s=0.3, times=0) as injected:
        try:
            total(module)
        except rt.DeviceError:
            assert time.monotonic() - began >= 0.3
        time.sleep(0.4)
        with pytest.raises(rt.DeviceError):
            module.sync()
    with faults.inject(kind="flaky_sync", before_s=0.3, times=0) as injected:
        time.sleep(0.4)
        total(module)
    assert injected.unfired == [{"kind": "flaky_sync", "before_s": 0.3, "times": 0}]


def test_rules_wait_for_their_time_where_a_virtual_clock_begins_and_ends(module):
    def is_due() -> bool:
        try:
            module.sync()
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


def test_a_hang_ends_in_a_virtual_clock_that_begins_meanwhile(module):
    with faults.inject(kind="hang", timeout_s=30) as injected:
        module.run()
        while not injected.fired:
            time.sleep(0.01)
        with clock.virtual():
            with pytest.raises(rt.DeviceError, match="ret:110"):
                module.sync()
            assert 29 < clock.now_ns() / 1e9 < 30


def test_a_forked_child_has_a_working_device_and_counts_anew(module):
    with faults.inject(kind="device_lost", call="Module.run", nth=2):
        module.run(True)
        with pytest.raises(rt.DeviceError):
            module.run(True)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                module.run(True)
                try:
                    module.run(True)
                except rt.DeviceError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
