"""The output of `hm_smi`, read as programs that watch devices read it."""

import re

import pytest

import tcim_lite.runtime as rt
from tcim_lite.cli.hm_smi import main
from tcim_lite.dev_ctrl.monitor import snapshot

DEVICE = re.compile(r"^\s*device(\d+)\s+detail\s+infos\s*$")
FIELD = re.compile(r"^\s*([A-Za-z0-9_]+)\s*:\s*(.*)$")
# What the vendor's prints of a device, in its order.
NAMES = [
    *("Driver_Version", "Vendor", "BDF", "Dev", "Cur_BandWidth", "Power_Management", "DVFS_Mode", "Cur_Ipu_Freq"),
    *("Lock_Ipu_Max_Clock", "Lock_Ipu_Min_Clock", "IPU_Load", "Firmware_Version", "IPU_Infos", "Core_Num", "Core_Freq"),
    *("Voltage", "Core0_Util", "Core1_Util", "Average_Util", "Group_Id", "Chip_Id", "SN", "PN", "Model"),
    *("DDR_Memory_Infos", "DDR_Memory_Free", "DDR_Memory_Total", "Temperature", "DDR0", "DDR2", "DDR4", "DDR5"),
    *("Core0", "Core1", "Board_Power"),
]
FIRST = 977  # of two devices that no other process uses


@pytest.fixture
def two_devices(tmp_path, monkeypatch):
    profile = tmp_path / "devices.ini"
    named = "[device]\nname = first\nmemory = 16 GiB\nclocks = 1200\n[device]\nname = second\n"
    profile.write_text("[device]\n" * FIRST + named)
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))


def parsed(text):
    found = {}
    for line in text.splitlines():
        if match := DEVICE.match(line):
            found[int(match[1])] = current = {}
        elif found and (match := FIELD.match(line)):
            current[match[1]] = match[2].strip()
    return found


def test_every_device_has_the_fields_of_the_vendors_in_its_order(two_devices, capsys):
    assert main(["-a", "-vvv"]) == 0
    text = capsys.readouterr().out
    devices = parsed(text)
    assert {FIRST, FIRST + 1} <= set(devices)
    assert all(list(device) == NAMES for device in devices.values())
    first = devices[FIRST]
    assert (first["Model"], first["Dev"], first["Vendor"]) == ("first", str(FIRST), "Houmo")
    assert (first["DDR_Memory_Total"], first["Cur_Ipu_Freq"]) == ("16384.0MB", "1200.0 Mhz")
    assert first["Lock_Ipu_Min_Clock"] == "600.0 Mhz"
    assert (first["DVFS_Mode"], first["SN"], first["BDF"]) == ("performance", "unavailable", "unavailable")
    assert float(first["Board_Power"].split()[0]) > 0
    assert re.search(r"^  HMSW_Version   : V1\.4\.0$", text, re.M)


def test_one_device_alone_and_one_that_is_not_there(two_devices, capsys):
    assert main(["-a", "-d", str(FIRST + 1)]) == 0
    assert list(parsed(capsys.readouterr().out)) == [FIRST + 1]
    assert main(["-d", "1048575"]) == 2
    assert "error: device 1048575 does not exist" in capsys.readouterr().err


def test_memory_in_use_is_not_free(write_add, two_devices, capsys):
    module = rt.load(write_add((1024, 1024)), rt.Option(FIRST))  # inputs and outputs of 4 MB
    assert main(["-d", str(FIRST)]) == 0
    device = parsed(capsys.readouterr().out)[FIRST]
    used = 16 * 1024 - float(device["DDR_Memory_Free"].removesuffix("MB"))
    assert used == pytest.approx(rt_used(FIRST), abs=0.11)  # printed in tenths
    assert used > 8
    assert module.get_num_inputs() > 0


def rt_used(device_id):
    """MB that `tcim-lite smi` has of a device."""
    return next(device.memory_used for device in snapshot().devices if device.id == device_id) / (1 << 20)


def test_options_that_would_change_a_device_are_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["-g", "performance", "-d", "0"])
    assert refused.value.code == 2
    assert "unrecognized arguments: -g performance" in capsys.readouterr().err
