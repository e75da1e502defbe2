"""The hmatc shim in its folder (spec tcim-api section 16.3, C-23)."""

import importlib.util
from pathlib import Path

import pytest

import tcim_lite

SHIMS = Path(tcim_lite.__file__).parent / "shims"


@pytest.fixture
def run_with(run_script):
    """Runs Python text with folders in front of the path, the shim's last unless it is among them."""

    def run(text, *folders):
        path = [str(folder) for folder in folders]
        return run_script(f"import sys; sys.path[:0] = {path!r}\n{text}")

    return run


GET = "from hmatc.python.get_hm_devices import get_hm_devices\n"


def test_c23_the_shim_is_found_in_its_folder_and_nowhere_else(run_with):
    assert run_with(GET + "print(get_hm_devices())", SHIMS) == "[0]"
    assert importlib.util.find_spec("hmatc") is None
    assert not list(SHIMS.rglob("__init__.py"))


def test_c23_ids_are_consecutive_and_exist(run_with, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "4")
    assert run_with(GET + "print(get_hm_devices(3), get_hm_devices(ndevices=4))", SHIMS) == "[0, 1, 2] [0, 1, 2, 3]"
    monkeypatch.setenv("HOUMO_VISIBLE_DEVICES", "6, 5,7")
    assert run_with(GET + "print(get_hm_devices(1), get_hm_devices(3))", SHIMS) == "[5] [5, 6, 7]"


@pytest.mark.parametrize(
    ("visible", "ndevices", "words"),
    [
        (None, 2, "there are 1; set TCIM_LITE_DEVICE_NUM"),
        ("0", 2, "lists 1 devices, 2 are needed"),
        ("4,6", 2, "[4, 5] do not all exist"),
        ("3,3", 2, "[3, 4] do not all exist"),
    ],
)
def test_c23_too_few_devices_is_an_assertion_error(run_with, monkeypatch, visible, ndevices, words):
    if visible is not None:
        monkeypatch.setenv("HOUMO_VISIBLE_DEVICES", visible)
    text = f"try:\n    get_hm_devices({ndevices})\nexcept AssertionError as error:\n    print(error)"
    assert words in run_with(GET + text, SHIMS)


def test_c23_it_relies_on_device_ctc_check(run_with):
    text = """
from hmatc.python import smi
print(smi.device_ctc_check([0]), smi.device_ctc_check([0, 1]), smi.device_ctc_check([0, 0]), smi.device_ctc_check([]),
      smi.device_ctc_check([-1]))
smi.device_ctc_check = lambda ids: False
try:
    get_hm_devices(1)
except AssertionError:
    print("refused")
"""
    assert run_with(GET + text, SHIMS) == "True False False False False\nrefused"


def test_c23_a_real_hmatc_wins_wherever_it_is_on_the_path(run_with, tmp_path):
    package = tmp_path / "hmatc" / "python"
    package.mkdir(parents=True)
    (tmp_path / "hmatc" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "get_hm_devices.py").write_text("def get_hm_devices(ndevices=1):\n    return ['real'] * ndevices\n")
    (package / "smi.py").write_text("real = True\n")
    text = GET + "from hmatc.python import smi\nprint(get_hm_devices(2), smi.real)"
    for folders in ((SHIMS, tmp_path), (tmp_path, SHIMS)):
        assert run_with(text, *folders) == "['real', 'real'] True"


def test_the_other_names_of_smi(run_with, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    text = """
from hmatc.python.smi import DeviceMonitor, MemInfo, SmiInfo
info = SmiInfo()
memory = DeviceMonitor(1).mem_info
print(info.device_num >= 2, isinstance(memory, MemInfo), memory.total > 0, memory.used >= 0,
      abs(memory.total - memory.used - memory.free) < 1, info.devices[1].name, 0 <= info.devices[1].utilization <= 100)
try:
    DeviceMonitor(4000)
except IndexError as error:
    print(error)
"""
    first, second = run_with(text, SHIMS).split("\n")
    assert first == "True True True True True xh2 (emulated) True"
    assert second.startswith("device 4000 does not exist; there are [0, 1")
