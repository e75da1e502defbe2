"""The output of `tcim-lite smi`."""

import itertools
import json
import os

import pytest

import tcim_lite.runtime as rt
from tcim_lite import _core
from tcim_lite.cli import main
from tcim_lite.errors import DeviceError

MODELLED = {"modelled_power_watts", "modelled_temperature_c"}

_ids = itertools.count(2400)


@pytest.fixture
def smi(capsys):
    """Runs the command, which must succeed, and returns what it printed."""

    def run(*options):
        assert main(["smi", *options]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def load_on(add_model, tmp_path, monkeypatch):
    """Loads a model on a device of this profile that this process has not used yet; also returns its id."""

    def load(profile):
        device_id = next(_ids)
        path = tmp_path / "devices.ini"
        path.write_bytes(b"[device]\n" * device_id + b"[device]\n" + profile)
        monkeypatch.setenv("TCIM_LITE_DEVICES", str(path))
        return rt.load(add_model, rt.Option(device_id)), device_id

    return load


def test_json_has_the_devices_of_the_environment_with_their_profile(smi, tmp_path, monkeypatch):
    profile = tmp_path / "devices.ini"
    profile.write_text("[device]\nname = first\nmemory = 16 GiB\nclocks = 1200\n[device]\nname = second\n")
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    first, second = json.loads(smi("--json"))["devices"][:2]
    assert (first["id"], first["name"], first["memory_total"]) == (0, "first", 16 << 30)
    assert (second["id"], second["name"]) == (1, "second")
    assert (
        set(first) == {"id", "name", "memory_used", "memory_total", "utilization", "clock_mhz", "dvfs_mode"} | MODELLED
    )


def test_the_tables_show_devices_and_processes(smi, load_on):
    module, device_id = load_on(b"name = card\nmemory = 2 GiB\nclocks = 1000\n")
    lines = [line.split() for line in smi().splitlines()]
    assert lines[0] == ["DEVICE", "NAME", "MEMORY", "USED", "/", "TOTAL", "UTIL", "CLOCK", "DVFS", "POWER*", "TEMP*"]
    assert [
        str(device_id),
        "card",
        "0.0",
        "/",
        "2048.0",
        "MB",
        "0",
        "%",
        "1000",
        "MHz",
        "PERFORMANCE",
        "10.0",
        "W",
        "55",
        "C",
    ] in lines
    assert ["PID", "DEVICE", "MEMORY", "UTIL", "COMMAND"] in lines
    assert any(line[:2] == [str(os.getpid()), str(device_id)] and "python" in " ".join(line) for line in lines)
    del module


def test_no_processes_and_no_devices_are_said_so(smi, monkeypatch):
    monkeypatch.setattr(_core, "process_usage", list)
    assert smi().endswith("no process uses a device\n")
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "0")
    assert "no devices" in smi()


def test_it_says_when_processes_cannot_be_seen(smi, monkeypatch):
    def hidden():
        raise DeviceError("/proc cannot be read")

    monkeypatch.setattr(_core, "process_usage", hidden)
    assert "processes unknown: /proc cannot be read" in smi()
    content = json.loads(smi("--json"))
    assert (content["processes"], content["problem"]) == ([], "/proc cannot be read")


def test_a_wrong_declaration_of_devices_is_an_error(monkeypatch, capsys):
    monkeypatch.setenv("HOUMO_VISIBLE_DEVICES", "a")
    assert main(["smi"]) == 2
    assert "HOUMO_VISIBLE_DEVICES='a'" in capsys.readouterr().err


def test_names_of_any_bytes_can_be_shown(smi, load_on, monkeypatch):
    module, _ = load_on(b"name = caf\xe9 \x1b[31m" + "国".encode() * 40 + b"\n")
    for _ in range(2):  # from the profile, then from what the process tells
        text = smi()
        assert r"caf\xe9 ?[31m国" in text
        assert "\x1b" not in text
        json.loads(smi("--json"))
        monkeypatch.delenv("TCIM_LITE_DEVICES", raising=False)
    del module


@pytest.mark.parametrize(("utilization", "watts", "celsius"), [(0.0, 10.0, 55.0), (0.5, 12.6, 62.8), (1.0, 15.2, 70.6)])
def test_power_and_temperature_follow_the_utilization_and_are_marked_as_modelled(
    smi, monkeypatch, utilization, watts, celsius
):
    class Usage:
        pid, command, device_id, device_name, mode, clock_mhz = 1, "x", 0, "card", 0, 1400
        memory_used, memory_total = 0, 1 << 30

    Usage.utilization = utilization
    monkeypatch.setattr(_core, "process_usage", lambda: [Usage])
    device = json.loads(smi("--json"))["devices"][0]
    assert (device["modelled_power_watts"], device["modelled_temperature_c"]) == (watts, celsius)
    text = smi()
    assert f"{watts:.1f} W" in text
    assert "* modelled from UTIL, not measured" in text
