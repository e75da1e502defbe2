"""Capacity, the ledger in its error, and that memory comes back (C-22)."""

import gc
import itertools
import json
import re

import numpy as np
import pytest
from graph_maker import GraphMaker, linear_file

import tcim_lite.runtime as rt
from tcim_lite import _core

_ids = itertools.count(2200)


@pytest.fixture
def small_device(tmp_path, monkeypatch):
    """Makes devices of a given memory that this process has not used yet."""

    def make(memory):
        device_id = next(_ids)
        profile = tmp_path / "devices.ini"
        profile.write_text("[device]\n" * device_id + f"[device]\nname = small\nmemory = {memory}\n")
        monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
        return device_id

    return make


def add_file(path, megabytes):
    """A model whose two inputs and output are of this size each."""
    maker, shape = GraphMaker("add", "float32"), (megabytes, 512, 512)
    path.write_bytes(maker.file(maker.op("Add", [maker.input(name, shape) for name in "ab"], "total", shape)))
    return path


def write_linear(path):
    """A model with a weight of 4 MiB."""
    path.write_bytes(linear_file((1, 1, 1024), "float32", (1024, 1024), "linear_f32"))
    return path


def test_an_out_of_memory_error_lists_who_holds_what(tmp_path, small_device):
    device_id = small_device("32 MiB")
    modules = [
        rt.load(write_linear(tmp_path / "linear.hmm"), rt.Option(device_id)),
        rt.load(add_file(tmp_path / "add.hmm", 5), rt.Option(device_id)),
    ]
    tensor = rt.Tensor(modules[1].get_input_info("a"))
    with pytest.raises(rt.DeviceError) as caught:
        rt.load(add_file(tmp_path / "big.hmm", 10), rt.Option(device_id))
    message = str(caught.value)
    assert message.startswith(f"device {device_id} (small) is out of memory: 10.0 MiB more for tensors of ")
    assert "big.hmm" in message.split(" of 32.0 MiB are in use: ")[0]
    assert message.endswith("; free modules or tensors, or raise memory in TCIM_LITE_DEVICES")
    holders = message.split(" are in use: ")[1].split(";")[0].split(", ")
    # Of a long path the end is shown.
    tensors, program, weights = holders[:3]
    assert tensors.startswith("15.0 MiB tensors of ")
    assert tensors.endswith("/add.hmm")
    assert program == "5.0 MiB tensors of the program"
    assert weights.startswith("4.0 MiB weights of ")
    assert weights.endswith("/linear.hmm")
    assert "big.hmm" not in ", ".join(holders)
    assert tensor.info.shape == (5, 512, 512)


def test_a_load_that_fails_frees_what_it_took_and_leaves_the_rest_working(tmp_path, small_device):
    device_id = small_device("16 MiB")
    add = rt.load(add_file(tmp_path / "add.hmm", 3), rt.Option(device_id))
    used = _core.device_memory_used(device_id)
    manager = rt.WeightManager(device_id)
    for path in (write_linear(tmp_path / "linear.hmm"), add_file(tmp_path / "big.hmm", 4)):
        for _ in range(3):
            # The weight, or one input, fits; the rest does not.
            filler = rt.Tensor(add.get_input_info("a"))
            with pytest.raises(rt.DeviceError, match="out of memory"):
                rt.load(path, rt.Option(manager))
            del filler
            gc.collect()
            assert _core.device_memory_used(device_id) == used
    add.set_input("a", np.ones((3, 512, 512), np.float32))
    add.run(True)
    assert add.get_output("total").numpy().mean() == 1
    linear = rt.load(tmp_path / "linear.hmm", rt.Option(manager))
    linear.run(True)
    del add, linear
    assert _core.device_memory_used(device_id) == 0


def test_the_list_of_holders_is_cut(tmp_path, small_device, write_add):
    device_id = small_device("1 MiB")
    names = [f"{'x' * 100}{number}" for number in range(12)]
    held = []
    for name in names:
        path = tmp_path / f"{name}.hmm"
        write_add((1, 16, 16)).rename(path)
        held.append(rt.load(path, rt.Option(device_id)))
    with pytest.raises(rt.DeviceError, match="out of memory") as caught:
        rt.load(write_add((1, 256, 512)), rt.Option(device_id))
    message = str(caught.value)
    assert message.count(".hmm") == 9  # eight, and the one that does not fit
    assert " more (" in message
    assert re.search(r"3\d\d\d bytes tensors of \.\.\.xxx", message)
    assert len(message) < 1500


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("memory = 0", "memory = 0"),
        ("memory = 1.5 GiB", "memory = 1.5 GiB"),
        ("memory = 99999999 TiB", "expected"),
        ("memory = 4 XiB", "expected"),
        ("cores = 0", "cores = 0"),
        ("clocks = 2 GHz", "clocks = 2 GHz"),
        ("name =", "name ="),
        ("speed = 3", "speed = 3"),
        ("device", "expected \\[device\\]"),
    ],
)
def test_a_profile_line_that_cannot_be_is_named(tmp_path, monkeypatch, line, words):
    profile = tmp_path / "devices.ini"
    profile.write_text(f"\n[device]\n{line}\n")
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    with pytest.raises(rt.DeviceError, match=rf"devices\.ini:3: '.*{words}"):
        rt.get_device_num()


def test_a_key_stands_once_in_a_section_of_a_profile(tmp_path, monkeypatch):
    profile = tmp_path / "devices.ini"
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    profile.write_text("[device]\nclock = 1000\nmemory = 1 GiB\n[device]\nmemory = 2 GiB\nclocks = 700 MHz\n")
    assert rt.get_device_num() == 2
    for line, key in (("memory = 3 GiB", "memory"), ("clock = 900", "clocks")):
        with profile.open("a") as file:
            file.write(f"{line}\n")
        with pytest.raises(rt.DeviceError, match=rf"devices\.ini:7: '{line}': {key} is given already"):
            rt.get_device_num()
        profile.write_text("".join(profile.read_text().splitlines(keepends=True)[:-1]))


def test_a_profile_that_is_no_profile(tmp_path, monkeypatch):
    profile = tmp_path / "devices.ini"
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    with pytest.raises(rt.DeviceError, match="cannot be read"):
        rt.get_device_num()
    profile.write_text("# nothing\n")
    with pytest.raises(rt.DeviceError, match=r"no \[device\] section"):
        rt.get_device_num()
    profile.write_text("name = x\n")
    with pytest.raises(rt.DeviceError, match=r"devices\.ini:1"):
        rt.get_device_num()
    profile.write_text("[device]\n" * 4097)
    with pytest.raises(rt.DeviceError, match="more than 4096"):
        rt.get_device_num()


def test_visible_devices_take_their_profile_by_number(tmp_path, monkeypatch):
    profile = tmp_path / "devices.ini"
    profile.write_text(
        "[device]\nname = zero\n[device]\r\nname = one # the second\r\nmemory = 8 GiB\r\nclocks=900MHz\r\n"
    )
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "7")
    assert [device.name for device in _core.visible_devices()] == ["zero", "one"]
    monkeypatch.setenv("HOUMO_VISIBLE_DEVICES", " 5,1,5")
    devices = _core.visible_devices()
    assert [device.id for device in devices] == [5, 1]
    assert (devices[1].name, devices[1].memory_total, devices[1].clock_mhz) == ("one", 8 << 30, 900)
    assert (devices[0].name, devices[0].clock_mhz, devices[0].cores) == ("xh2 (emulated)", 1400, 2)


def test_a_thousand_loads_leave_nothing_behind(run_script, linear_pair, add_model):
    text = """
        import gc, json, os, resource, sys
        import numpy as np
        import tcim_lite.runtime as r
        from tcim_lite import _core

        def state():
            gc.collect()
            with open("/proc/self/statm") as file:
                resident = int(file.read().split()[1]) * resource.getpagesize()
            return {
                "memory": _core.device_memory_used(0),
                "threads": len(os.listdir("/proc/self/task")),
                "descriptors": len(os.listdir("/proc/self/fd")),
                "maps": sum(1 for _ in open("/proc/self/maps")),
                "resident": resident,
            }

        def cycle(number):
            manager = r.WeightManager(0)
            prefill = r.load(sys.argv[1], r.Option(manager))
            decode = r.load(sys.argv[2], r.Option(manager).set_dummy_tensors(["x"]))
            decode.set_dev_input("x", r.Tensor(decode.get_input_info("x")))
            add = r.load(sys.argv[3])
            if number % 5 == 0:
                add.set_stream(r.Stream())
            for module in (prefill, decode, add):
                module.run()
            return decode.get_output("y").numpy()

        states = []
        for number in range(1000):
            if number in (100, 999):
                states.append(state())
            cycle(number)
        print(json.dumps([*states, state()]))
    """
    early, late, end = json.loads(run_script(text, *map(str, linear_pair), str(add_model)))
    assert early["memory"] == late["memory"] == end["memory"] == 0
    for what in ("threads", "descriptors"):
        assert early[what] == late[what] == end[what]
    assert end["maps"] - early["maps"] < 50
    assert end["resident"] - early["resident"] < 8 << 20
