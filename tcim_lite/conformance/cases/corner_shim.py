"""C-23: hmatc's helper for device ids, which the vendor's LLM examples import."""

import importlib.util
from pathlib import Path

from .. import under_test as rt
from ..checks import NotRunError
from ..registry import each

GET = "from hmatc.python.get_hm_devices import get_hm_devices\n"


class Shims:
    """Runs Python text with the folder of the shims, and others, in front of the path."""

    def __init__(self, kit):
        self._run = kit.run_script
        # Beside the package of the emulator; on a machine with the vendor's tools hmatc is installed.
        self.folder = Path(rt.module().__file__ or "").parents[1] / "shims" if rt.is_emulator() else None

    def run(self, text, *folders):
        path = [str(folder) for folder in folders or (self.folder,) if folder is not None]
        return self._run(f"import sys; sys.path[:0] = {path!r}\n{text}", prelude=False)


def test_c23_the_ids_of_devices_are_found(kit):
    shims = Shims(kit)
    if shims.folder is None and importlib.util.find_spec("hmatc") is None:
        raise NotRunError("the vendor's hmatc is not installed")
    assert shims.run(GET + "print(get_hm_devices())") == "[0]"


def emulators(kit):
    shims = Shims(kit)
    if shims.folder is None:
        raise NotRunError("the emulator's shim; the vendor's own hmatc belongs to another package")
    kit.devices(1)
    return shims


def test_c23_the_shim_is_found_in_its_folder_and_nowhere_else(kit):
    folder = emulators(kit).folder
    found = importlib.util.find_spec("hmatc")  # None where the emulator was installed without its .pth file
    assert found is None or [Path(place) for place in found.submodule_search_locations] == [folder / "hmatc"]
    assert not list((folder / "hmatc").rglob("__init__.py"))


def test_c23_ids_are_consecutive_and_exist(kit):
    shims = emulators(kit)
    kit.setenv("TCIM_LITE_DEVICE_NUM", "4")
    text = GET + "print(get_hm_devices(3), get_hm_devices(ndevices=4))"
    assert shims.run(text) == "[0, 1, 2] [0, 1, 2, 3]"
    kit.setenv("HOUMO_VISIBLE_DEVICES", "6, 5,7")
    assert shims.run(GET + "print(get_hm_devices(1), get_hm_devices(3))") == "[5] [5, 6, 7]"


@each(
    "given",
    [
        (None, "there are 1; set TCIM_LITE_DEVICE_NUM"),
        ("0", "lists 1 devices, 2 are needed"),
        ("4,6", "[4, 5] do not all exist"),
        ("3,3", "[3, 4] do not all exist"),
    ],
)
def test_c23_too_few_devices_is_an_assertion_error(kit, given):
    visible, words = given
    shims = emulators(kit)
    kit.setenv("HOUMO_VISIBLE_DEVICES", visible)
    text = "try:\n    get_hm_devices(2)\nexcept AssertionError as error:\n    print(error)"
    assert words in shims.run(GET + text)


def test_c23_a_list_of_devices_that_is_none_is_named(kit):
    shims = emulators(kit)
    kit.setenv("HOUMO_VISIBLE_DEVICES", "0,a")
    text = "try:\n    get_hm_devices()\nexcept ValueError as error:\n    print(error)"
    assert shims.run(GET + text) == "HOUMO_VISIBLE_DEVICES='0,a': expected device ids such as 0,1"


def test_c23_it_relies_on_device_ctc_check(kit):
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
    assert emulators(kit).run(GET + text) == "True False False False False\nrefused"


def test_c23_a_real_hmatc_wins_wherever_it_is_on_the_path(kit, tmp_path):
    shims = emulators(kit)
    package = tmp_path / "other" / "hmatc" / "python"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "get_hm_devices.py").write_text("def get_hm_devices(ndevices=1):\n    return ['real'] * ndevices\n")
    (package / "smi.py").write_text("real = True\n")
    text = GET + "from hmatc.python import smi\nprint(get_hm_devices(2), smi.real)"
    for folders in ((shims.folder, tmp_path / "other"), (tmp_path / "other", shims.folder)):
        assert shims.run(text, *folders) == "['real', 'real'] True"
