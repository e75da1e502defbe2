"""What processes tell `tcim-lite smi` about their use of devices (C-20)."""

import gc
import os
import signal
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import warm_python
from device_usage import lines_of, smi, usage_links

import tcim_lite.runtime as rt
from tcim_lite import _core

USER = """
    import os, sys
    import numpy as np
    import tcim_lite as tcim
    import tcim_lite.runtime as r

    def step(name):
        print(name, flush=True)
        sys.stdin.readline()

    def use(value=1.0, device=0):
        module = r.load(sys.argv[1], r.Option(device))
        module.set_input("a", np.full((2, 3), value))
        for _ in range(200):
            module.run(True)
        assert module.get_output("total").numpy().sum() == 6 * value
        return module
"""


@pytest.fixture
def start(add_model):
    """Starts Python processes that stop at every `step(name)` until `go`."""
    processes = []

    class Process:
        def __init__(self, text, **environment):
            program = textwrap.dedent(USER) + textwrap.dedent(text)
            self.popen = warm_python.Popen("-c", program, add_model, env={**os.environ, **environment})
            self.pid = self.popen.pid
            processes.append(self.popen)

        def reaches(self, name):
            assert self.popen.stdout.readline().strip() == name
            return self

        def go(self):
            self.popen.stdin.write("\n")
            self.popen.stdin.flush()
            return self

        def end(self):
            self.popen.stdin.close()
            assert self.popen.wait(60) == 0

    yield Process
    for popen in processes:
        with popen:
            popen.kill()


def test_a_process_appears_when_it_first_uses_a_device(start):
    process = start("""
        tcim.dev_ctrl.HalDeviceFactory.create("xh2").get_mem_info(0)
        option = r.Option(r.WeightManager(r.DevManager([0], "xh2")))
        r.get_device_num()
        step("constructed")
        module = use()
        step("loaded")
        del module
        step("unloaded")
    """)
    process.reaches("constructed")
    assert lines_of(process.pid) == []
    process.go().reaches("loaded")
    (line,) = lines_of(process.pid)
    assert line["device_id"] == 0
    assert line["memory_used"] > 0
    words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
    assert words[0] == sys.executable
    assert line["command"].startswith(" ".join(words[:3]))
    process.go().reaches("unloaded")
    (line,) = lines_of(process.pid)
    assert line["memory_used"] == 0
    process.go().end()
    assert lines_of(process.pid) == []


@pytest.mark.slow
def test_processes_that_load_and_run_at_once_are_all_there_and_killed_ones_are_not(start):
    text = """
        step("started")
        modules = [use(value, device) for device in (3, 5) for value in range(20)]
        step("loaded")
        assert use(7.0, 5).get_output("total").numpy().sum() == 42
        step("done")
    """
    processes = [start(text, TCIM_LITE_DEVICE_NUM="6").reaches("started") for _ in range(2)]
    for process in processes:
        process.go()
    for process in processes:
        process.reaches("loaded")
    now = smi()
    pids = {process.pid for process in processes}
    lines = [line for line in now["processes"] if line["pid"] in pids]
    assert sorted((line["pid"], line["device_id"]) for line in lines) == sorted(
        (pid, device) for pid in pids for device in (3, 5)
    )
    for device in (3, 5):  # which only they know
        (state,) = [state for state in now["devices"] if state["id"] == device]
        used = [line["memory_used"] for line in now["processes"] if line["device_id"] == device]
        assert state["memory_used"] == sum(used) > 0
    processes[0].popen.send_signal(signal.SIGKILL)
    processes[0].popen.wait(60)
    assert lines_of(processes[0].pid) == []
    assert len(lines_of(processes[1].pid)) == 2
    processes[1].go().reaches("done").go().end()


@pytest.mark.slow
def test_utilization_clock_and_mode_are_those_of_the_process(start):
    process = start("""
        import threading
        hal = tcim.dev_ctrl.HalDeviceFactory.create("xh2")
        assert hal.set_dvfs_mode(9, 1) == 0
        module = use(device=9)
        step("idle")
        stop = threading.Event()
        def work():
            while not stop.is_set():
                module.run(True, r.RunOption(1000))
        thread = threading.Thread(target=work)
        thread.start()
        step("busy")
        stop.set()
        thread.join()
        hal.ipu_reset(9)
        hal.set_dvfs_mode(9, 0)
        step("performance")
    """, TCIM_LITE_DEVICE_NUM="10")  # fmt: skip

    def state():
        (found,) = [state for state in smi()["devices"] if state["id"] == 9]
        return found

    process.reaches("idle")
    assert (state()["dvfs_mode"], state()["clock_mhz"]) == ("ON_DEMAND", 700)
    process.go().reaches("busy")
    for _ in range(200):
        (line,) = lines_of(process.pid)
        if line["utilization"] > 10:
            break
    assert 10 < line["utilization"] <= 100
    assert any(state()["clock_mhz"] == 1400 for _ in range(100))
    process.go().reaches("performance")
    assert (state()["dvfs_mode"], state()["clock_mhz"], state()["utilization"]) == ("PERFORMANCE", 1400, 0)


def test_a_forked_child_appears_as_itself_once_it_uses_the_device(start):
    process = start("""
        module = use()
        step("loaded")
        if (child := os.fork()) == 0:
            print(os.getpid(), flush=True)
            sys.stdin.readline()
            another = use(2.0)
            del module
            step("child uses")
            os._exit(0)
        os.waitpid(child, 0)
        module.run(True)
        step("child is gone")
    """)
    process.reaches("loaded")
    before = lines_of(process.pid)
    process.go()
    child = int(process.popen.stdout.readline())
    assert lines_of(child) == []
    process.go().reaches("child uses")
    (line,) = lines_of(child)
    assert (line["device_id"], line["memory_used"]) == (0, before[0]["memory_used"])
    assert lines_of(process.pid)[0]["memory_used"] == before[0]["memory_used"]
    process.go().reaches("child is gone")
    assert lines_of(child) == []
    assert lines_of(process.pid)[0]["memory_used"] == before[0]["memory_used"]
    process.go().end()


def test_a_program_that_closes_every_descriptor_goes_on(start):
    process = start("""
        module = use()
        fds = [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]
        (number,) = [int(fd) for fd in fds if "memfd:tcim_lite" in os.readlink(f"/proc/self/fd/{fd}")]
        os.closerange(3, 256)
        os.dup2(os.open(sys.argv[1], os.O_RDONLY), number)  # takes its number
        modules = [use(value) for value in range(5)]
        if (child := os.fork()) == 0:
            use(2.0)
            os._exit(0 if os.pread(number, 1, 0) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert os.pread(number, 1, 0)
        step("done")
    """)
    process.reaches("done").go().end()


def test_a_process_that_gets_no_shared_memory_works_and_is_not_listed(start):
    process = start("""
        hal = tcim.dev_ctrl.HalDeviceFactory.create("xh2")
        with open(sys.argv[1], "rb") as file:
            model = file.read()
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        module = r.load(model)
        module.set_input("a", np.ones((2, 3)))
        module.run(True)
        assert module.get_output("total").numpy().sum() == 6
        module.run(True, r.RunOption(100000))
        assert hal.get_ipu_util_rate(0)[1] > 0
        for fd in taken:
            os.close(fd)
        module.run(True)
        step("done")
    """)
    process.reaches("done")
    assert lines_of(process.pid) == []
    process.go().end()


@pytest.mark.parametrize("kind", ["unsealed", "of another size", "of another process", "garbage"])
def test_foreign_shared_memory_of_the_same_name_does_no_harm(start, kind, add_model):
    rt.load(add_model)
    (own,) = usage_links(os.getpid())
    size = os.stat(own).st_size
    process = start(f"""
        import fcntl
        kind, size = {kind!r}, {size}
        fd = os.memfd_create({os.readlink(own).removeprefix("/memfd:").split(" ")[0]!r}, os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size + (kind == "of another size"))
        pid = os.getpid() + (kind == "of another process")
        os.pwrite(fd, b"\\xff" * 65536, 0)
        os.pwrite(fd, pid.to_bytes(4, "little"), 0)
        os.pwrite(fd, (70 if kind == "garbage" else 1 << 31).to_bytes(4, "little"), 4)
        if kind != "unsealed":
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS if hasattr(fcntl, "F_ADD_SEALS") else 1033, 2)
        step("ready")
    """)
    process.reaches("ready")
    lines = lines_of(process.pid)
    assert bool(lines) == (kind == "garbage")
    process.go().end()


def test_others_cannot_change_or_shrink_what_a_process_tells(start):
    process = start("module = use(); step('loaded')").reaches("loaded")
    (fd,) = usage_links(process.pid)
    before = lines_of(process.pid)
    with pytest.raises(OSError, match="permitted"):
        os.truncate(fd, 0)
    handle = os.open(fd, os.O_RDWR)
    with pytest.raises(OSError, match="permitted"):
        os.pwrite(handle, b"x" * 4096, 0)
    os.close(handle)
    assert lines_of(process.pid)[0]["memory_used"] == before[0]["memory_used"]
    process.go().end()


def test_modules_of_this_process_are_counted_like_those_of_others(add_model, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "3000")
    module = rt.load(add_model, rt.Option(2999))
    module.set_input("a", np.ones((2, 3)))
    module.run(True)
    (line,) = [line for line in lines_of(os.getpid()) if line["device_id"] == 2999]
    assert line["memory_used"] == _core.device_memory_used(2999) > 0
    del module
    gc.collect()
    (line,) = [line for line in lines_of(os.getpid()) if line["device_id"] == 2999]
    assert line["memory_used"] == 0
