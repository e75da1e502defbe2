"""HalDevice.ipu_reset and its callbacks (C-17)."""

import contextlib
import gc
import os
import threading
import weakref

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.dev_ctrl import DvfsMode, HalDeviceFactory, Status


@pytest.fixture
def calls(hal):
    """Registers callbacks that append to a list; they are gone after the test."""
    handles = []

    class Calls(list):
        def add(self, phase, device_id, fn):
            handle = getattr(hal, f"register_{phase}_reset_callback")(device_id, fn)
            handles.append(handle)
            return handle

        def note(self, phase, device_id, text):
            return self.add(phase, device_id, lambda got: self.append((text, got)))

    yield Calls()
    for handle in handles:
        hal.unregister_reset_callback(handle)


def test_reset_callbacks_run_in_registration_order(hal, device, calls):
    calls.note("post", device, "post 1")
    calls.note("pre", device, "pre 1")
    calls.note("pre", device, "pre 2")
    calls.note("post", device, "post 2")
    calls.note("pre", 0, "of another device")
    assert HalDeviceFactory.create("xh2").ipu_reset(device) == Status.OK
    assert calls == [(text, device) for text in ("pre 1", "pre 2", "post 1", "post 2")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_callback_may_fork_and_the_child_may_reset(run_script, add_model):
    text = """
        import os, sys
        import tcim_lite as tcim
        hal = tcim.dev_ctrl.HalDeviceFactory.create("xh2")
        tcim.runtime.load(sys.argv[1]).run()

        def fork(_):
            hal.unregister_reset_callback(handle)
            if (pid := os.fork()) == 0:
                tcim.runtime.load(sys.argv[1]).run(True)
                os._exit(hal.ipu_reset(0))
            print(os.waitpid(pid, 0)[1])

        handle = hal.register_pre_reset_callback(0, fork)
        print(hal.ipu_reset(0))
    """
    assert run_script(text, str(add_model)) == "0\nStatus.OK"


def test_a_reset_waits_for_queued_work_and_modules_that_survive_go_on(hal, device, write_add):
    hal.set_dvfs_mode(device, DvfsMode.ON_DEMAND)
    module = rt.load(write_add((1, 256, 256)), rt.Option(device))
    other = rt.load(write_add((1, 256, 256)), rt.Option(device))
    other.set_stream(rt.Stream())
    for value in (1, 2):
        module.set_input("a", np.full((1, 256, 256), value))
        for _ in range(5):
            module.run(False, rt.RunOption(20))
            other.run(False, rt.RunOption(20))
        assert hal.ipu_reset(device) == Status.OK
        assert hal.get_ipu_frequency(device) == (0, 700)  # nothing runs
        assert module.get_output("total").numpy().mean() == value


def test_unregistering_twice_is_a_status(hal, device, calls):
    handle = calls.note("pre", device, "never")
    assert HalDeviceFactory.create("xh2").unregister_reset_callback(handle) == Status.OK
    assert hal.unregister_reset_callback(handle) == Status.INVALID_ARGUMENT
    for foreign in (None, 0, "handle", [], object()):
        assert hal.unregister_reset_callback(foreign) == Status.INVALID_ARGUMENT
    assert hal.ipu_reset(device) == 0
    assert calls == []
    with pytest.raises(TypeError, match="function that takes the device id"):
        hal.register_pre_reset_callback(device, 3)


def test_callbacks_may_unregister_themselves_and_others(hal, device, calls):
    def once(_):
        calls.append("once")
        assert hal.unregister_reset_callback(first) == Status.OK
        hal.unregister_reset_callback(second)

    first = calls.add("pre", device, once)
    second = calls.note("pre", device, "unregistered before its turn")
    for _ in range(2):
        assert hal.ipu_reset(device) == Status.OK
    assert calls == ["once"]


def test_a_callback_registered_in_a_callback_takes_part_when_its_turn_is_to_come(hal, device, calls):
    def register(_):
        hal.unregister_reset_callback(handle)
        calls.note("pre", device, "pre")
        calls.note("post", device, "post")

    handle = calls.add("pre", device, register)
    hal.ipu_reset(device)
    assert calls == [("post", device)]
    hal.ipu_reset(device)
    assert calls[1:] == [("pre", device), ("post", device)]


def test_a_reset_inside_a_reset_is_refused(hal, device, calls, monkeypatch, capfd):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", str(device + 2))

    def again(_):
        calls.append(hal.ipu_reset(device))
        thread = threading.Thread(target=lambda: calls.append(hal.ipu_reset(device)))
        thread.start()
        thread.join()
        calls.append(hal.ipu_reset(device + 1))

    calls.add("pre", device, again)
    for _ in range(2):
        assert hal.ipu_reset(device) == Status.OK
    assert calls == [Status.UNSUPPORTED, Status.UNSUPPORTED, Status.OK] * 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(f"a reset of device {device} is under way" in line for line in lines)


def test_a_callback_that_raises_stops_nobody_and_is_raised_at_the_end(hal, device, calls, capfd):
    def fail(_):
        raise LookupError("the first")

    def fail_too(_):
        raise OSError("the second")

    calls.add("pre", device, fail)
    calls.note("pre", device, "pre")
    calls.add("post", device, fail_too)
    calls.note("post", device, "post")
    for _ in range(2):
        with pytest.raises(LookupError, match="the first"):
            hal.ipu_reset(device)
        assert capfd.readouterr().err.count("OSError: the second") == 1
    assert calls == [("pre", device), ("post", device)] * 2


class UnprintableError(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize("phase", ["pre", "post"])
def test_after_a_callback_that_raised_and_unregistered_itself_a_reset_is_as_ever(hal, device, calls, add_model, phase):
    module = rt.load(str(add_model), rt.Option(device))

    def fail(_):
        assert hal.unregister_reset_callback(handle) == Status.OK
        module.run()
        raise UnprintableError

    calls.note("pre", device, "pre")
    handle = calls.add(phase, device, fail)
    calls.note("post", device, "post")
    with pytest.raises(UnprintableError):
        hal.ipu_reset(device)
    for _ in range(2):
        assert hal.ipu_reset(device) == Status.OK
    assert calls == [("pre", device), ("post", device)] * 3
    module.run(True)


def test_a_further_exception_without_a_text_is_logged_by_its_type(hal, device, calls, capfd):
    def fail(error):
        def raise_it(_):
            raise error

        return raise_it

    calls.add("pre", device, fail(LookupError("the first")))
    calls.add("post", device, fail(UnprintableError()))
    with pytest.raises(LookupError, match="the first"):
        hal.ipu_reset(device)
    assert capfd.readouterr().err.count("a further callback failed: UnprintableError") == 1


def test_an_interrupt_in_a_callback_comes_before_other_exceptions(hal, device, calls, capfd):
    def fail(_):
        raise LookupError("the first")

    def interrupt(_):
        raise KeyboardInterrupt

    calls.add("pre", device, fail)
    handle = calls.add("pre", device, interrupt)
    calls.note("post", device, "post")
    with pytest.raises(KeyboardInterrupt):
        hal.ipu_reset(device)
    assert "LookupError: the first" in capfd.readouterr().err
    assert calls == [("post", device)]
    hal.unregister_reset_callback(handle)
    with pytest.raises(LookupError, match="the first"):
        hal.ipu_reset(device)


def test_post_reset_callbacks_run_even_if_the_reset_itself_fails(hal, device, calls, monkeypatch):
    """As they do when Ctrl-C ends its wait for queued work: what a pre-reset callback destroyed is made again."""
    calls.add("pre", device, lambda _: monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "many"))
    calls.note("post", device, "post")
    with pytest.raises(rt.TcimError, match="TCIM_LITE_DEVICE_NUM='many'"):
        hal.ipu_reset(device)
    assert calls == [("post", device)]
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", str(device + 1))


def test_what_a_raising_callback_held_dies_with_its_exception(hal, device, calls):
    class Held:
        pass

    alive = []

    def fail(_):
        held = Held()
        alive.append(weakref.ref(held))
        raise LookupError(str(alive))

    calls.add("pre", device, fail)
    gc.disable()
    try:
        with contextlib.suppress(LookupError):
            hal.ipu_reset(device)
        assert alive[0]() is None
    finally:
        gc.enable()
