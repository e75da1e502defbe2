"""C-17: device control. The module is `dev_ctrl` beside the runtime under test."""

import importlib
import itertools
import threading
from contextlib import contextmanager, suppress

import numpy as np

from .. import under_test as rt
from ..checks import NotRunError, emulator_only, refused

_ids = itertools.count(2000)


def dev_ctrl():
    """The module."""
    name = f"{rt.package()}.dev_ctrl"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotRunError(f"no module {name}: {error}") from None


def fresh_device(kit):
    """The id of a device that this process has not used yet; 0 of another runtime."""
    if not rt.is_emulator():
        return 0
    device = next(_ids)
    kit.devices(device + 1)
    return device


@contextmanager
def callbacks(hal, device, **functions):
    """Calls them before (`pre`) and after (`post`) a reset of the device."""
    handles = [getattr(hal, f"register_{phase}_reset_callback")(device, fn) for phase, fn in functions.items()]
    try:
        yield
    finally:
        statuses = [hal.unregister_reset_callback(handle) for handle in handles]
        assert all(status == 0 for status in statuses)


def test_c17_both_module_names_are_one_module_and_come_with_a_bare_import(run_script):
    emulator_only("both names")
    text = f"""
        import sys
        import {rt.package()} as package
        assert not any("dev_ctrl" in name or name == "numpy" for name in sys.modules)
        a = package.dev_ctrl
        b = package.pydev_ctrl
        import {rt.package()}.dev_ctrl as c
        import {rt.package()}.pydev_ctrl as d
        from {rt.package()}.pydev_ctrl import HalDeviceFactory
        assert {{"dev_ctrl", "pydev_ctrl"}} <= set(dir(package))
        print(a is b is c is d, HalDeviceFactory is a.HalDeviceFactory)
    """
    assert run_script(text, prelude=False) == "True True"
    text = f"import {rt.package()}.pydev_ctrl as a; import {rt.package()}.dev_ctrl as b; print(a is b)"
    assert run_script(text, prelude=False) == "True"


def test_c17_a_backend_is_looked_up_when_a_device_is_created(kit):
    factory = dev_ctrl().HalDeviceFactory
    for name in ("Xh2HalBackend", "Xh2aHalBackend"):
        assert factory.create(name).get_dvfs_mode(0)[0] == 0
    with refused("UnsupportedError", "unknown backend 'Xh3'"):
        factory.create("Xh3")
    emulator_only("other backend names")
    for name in ("xh2", ""):
        assert factory.create(name).get_dvfs_mode(0)[0] == 0
    with refused("UnsupportedError", "M30"):
        factory.create("Xh1HdiBackend")
    with refused("TypeError", "expected a str"):
        factory.create(2)
    kit.setenv("TCIM_BACKEND", "Xh9")
    with refused("NotImplementedError", "Xh9"):
        factory.create()


def test_c17_getters_return_a_status_and_a_value(kit):
    control, device = dev_ctrl(), fresh_device(kit)
    hal = control.HalDeviceFactory.create("Xh2HalBackend")
    status, mode = hal.get_dvfs_mode(device)
    assert status == 0
    assert mode in (control.DvfsMode.PERFORMANCE, control.DvfsMode.ON_DEMAND)
    status, megahertz = hal.get_ipu_frequency(device)
    assert status == 0
    assert 0 < megahertz < 10_000
    status, percent = hal.get_ipu_util_rate(device)
    assert status == 0
    assert 0 <= percent <= 100
    status, info = hal.get_mem_info(device)
    assert status == 0
    assert 0 <= info.mem_used < info.mem_total
    assert 0 < info.mem_avail <= info.mem_total
    for wanted in (control.DvfsMode.ON_DEMAND, control.DvfsMode.PERFORMANCE):
        assert hal.set_dvfs_mode(device, wanted) == 0
        assert hal.get_dvfs_mode(device) == (0, wanted)


def test_c17_a_device_that_does_not_exist_is_a_status(kit):
    emulator_only("statuses of bad device ids")
    control, device = dev_ctrl(), fresh_device(kit)
    hal, invalid = control.HalDeviceFactory.create("Xh2HalBackend"), control.Status.INVALID_ARGUMENT
    for bad in (device + 1, -1, 1 << 80):
        assert hal.get_dvfs_mode(bad) == (invalid, control.DvfsMode.PERFORMANCE)
        assert hal.get_ipu_frequency(bad) == (invalid, 0)
        assert hal.get_mem_info(bad) == (invalid, control.MemInfo(0, 0, 0))
        assert hal.get_ipu_util_rate(bad) == (invalid, 0)
        assert hal.set_dvfs_mode(bad, control.DvfsMode.ON_DEMAND) == invalid
        assert hal.ipu_reset(bad) == invalid
        assert hal.unregister_reset_callback(hal.register_post_reset_callback(bad, print)) == invalid


def test_c17_callbacks_may_destroy_and_recreate_modules_and_use_the_whole_api(kit):
    control, device = dev_ctrl(), fresh_device(kit)
    hal = control.HalDeviceFactory.create("Xh2aHalBackend")
    path = kit.model("add")
    modules = {"model": rt.load(path, rt.Option(rt.WeightManager(device)))}
    calls = []

    def destroy(device_id):
        calls.append(("pre", device_id))
        del modules["model"]
        assert hal.get_mem_info(device)[0] == 0

    def create(device_id):
        calls.append(("post", device_id))
        option = rt.Option(rt.WeightManager(rt.DevManager([device_id], "Xh2HalBackend")))
        module = modules["model"] = rt.load(path, option)
        module.set_stream(rt.Stream())
        module.set_input("a", np.ones((2, 3), np.float16))
        module.set_input("b", np.zeros((2, 3), np.float16))
        module.run()
        module.sync()
        assert hal.set_dvfs_mode(device_id, control.DvfsMode.ON_DEMAND) == 0

    with callbacks(hal, device, pre=destroy, post=create):
        for _ in range(3):
            assert hal.ipu_reset(device) == 0
    assert calls == [("pre", device), ("post", device)] * 3
    assert modules["model"].get_output("total").numpy().sum() == 6


def test_c17_callbacks_leave_the_interpreter_to_other_threads(kit):
    control, device = dev_ctrl(), fresh_device(kit)
    hal = control.HalDeviceFactory.create("Xh2aHalBackend")
    asked, answered = threading.Event(), threading.Event()
    path, seen = kit.model("add"), []

    def answer():
        asked.wait(30)
        rt.load(path, rt.Option(rt.WeightManager(device))).run(True)
        answered.set()

    def ask(_):
        asked.set()
        seen.append(answered.wait(30))

    thread = threading.Thread(target=answer)
    thread.start()
    with callbacks(hal, device, pre=ask):
        assert hal.ipu_reset(device) == 0
    thread.join()
    assert seen == [True]


def test_c17_a_second_unregister_is_an_invalid_argument(kit):
    control, device = dev_ctrl(), fresh_device(kit)
    hal = control.HalDeviceFactory.create("Xh2HalBackend")
    handle = hal.register_pre_reset_callback(device, print)
    assert hal.unregister_reset_callback(handle) == control.Status.OK == 0
    assert hal.unregister_reset_callback(handle) == control.Status.INVALID_ARGUMENT


def test_c17_a_callback_that_raises_does_not_spoil_the_next_reset(kit):
    control, device = dev_ctrl(), fresh_device(kit)
    hal = control.HalDeviceFactory.create("Xh2HalBackend")
    calls = []

    def fail(device_id):
        calls.append("failed")
        raise LookupError(f"a broken callback of device {device_id}")

    for phase in ("pre", "post"):
        with callbacks(hal, device, **{phase: fail}), suppress(LookupError):
            hal.ipu_reset(device)
        with callbacks(hal, device, pre=lambda _: calls.append("pre"), post=lambda _: calls.append("post")):
            assert hal.ipu_reset(device) == 0
    assert calls == ["failed", "pre", "post"] * 2
