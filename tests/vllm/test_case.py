"""Folders as engines of compiled cases describe them, and the sizes of packages: needs no vLLM."""

import json
from pathlib import Path

import pytest

from tcim_lite.cli import main
from tcim_lite.llm import Package
from tcim_lite.llm.engine.slots import Slots
from tcim_lite.vllm.case import Case
from tcim_lite.vllm.shape import Shape

CHECKPOINT = Path(__file__).parents[2] / "examples" / "demo_checkpoint"


@pytest.fixture
def folder(tmp_path):
    """A folder whose config.json has the keys given, and a folder of parts."""
    (tmp_path / "parts").mkdir()

    def make(**keys) -> Path:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"} | keys))
        return tmp_path

    return make


def test_without_the_keys_the_folder_is_the_package(folder):
    case = Case.read(folder())
    assert (case.folder, case.parallel_size) == (folder(), None)
    case.check({1}, flag=2, devices=[0, 1, 2])  # for others to judge


def test_a_folder_without_config_is_one_without_the_keys(tmp_path):
    assert Case.read(tmp_path).folder == tmp_path


def test_the_keys_name_the_parts_and_how_many_devices(folder):
    case = Case.read(folder(case_dir="parts", param_dir="parts", tensor_parallel={"use_tp": True, "parallel_size": 2}))
    assert case.folder == folder() / "parts"
    assert case.parallel_size == 2
    case.check({1, 2})
    case.check({2}, flag=2, devices=[2, 3])
    case.check({2}, devices=[[0, 1], [2, 3]])


def test_an_absolute_folder_is_taken_as_it_is(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("elsewhere")
    assert Case.read(folder(param_dir=str(other))).folder == other


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"flag": 4}, "tensor_parallel_size=4, but .*config.json says parallel_size=2"),
        ({"devices": [0]}, r"names 1 devices, \[0\], but .* says parallel_size=2"),
        ({"devices": [[0, 1], [2, 3, 4]]}, r"names 3 devices, \[2, 3, 4\], but .* says parallel_size=2"),
        ({"devices": {"0": [0, 1], "1": [2]}}, r"names 1 devices, \[2\], but .* says parallel_size=2"),
        ({"compiled": {1, 4}}, "says parallel_size=2, the package has graphs for 1 or 4"),
    ],
)
def test_two_numbers_of_devices_that_differ_are_both_named(folder, numbers, message):
    case = Case.read(folder(tensor_parallel={"use_tp": True, "parallel_size": 2}))
    with pytest.raises(ValueError, match=message):
        case.check(**{"compiled": {1, 2}} | numbers)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"case_dir": "absent"}, "names .*absent, which is no folder"),
        ({"case_dir": "parts", "param_dir": "."}, "name the same"),
        ({"case_dir": 3}, "case_dir is 3"),
        ({"tensor_parallel": 2}, "expected an object"),
        ({"tensor_parallel": {"use_tp": 1}}, "use_tp is 1, expected true or false"),
        ({"tensor_parallel": {"parallel_size": "2"}}, "parallel_size is '2'"),
        ({"tensor_parallel": {"parallel_size": True}}, "parallel_size is True"),
        ({"tensor_parallel": {"parallel_size": 0}}, "parallel_size is 0"),
        ({"tensor_parallel": {"use_tp": False, "parallel_size": 2}}, "use_tp is false, but parallel_size=2"),
    ],
)
def test_keys_that_say_nothing_of_use_are_refused_with_the_file_named(folder, keys, message):
    with pytest.raises((ValueError, FileNotFoundError), match=f"config.json: .*{message}"):
        Case.read(folder(**keys))


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json: (is not JSON|expected an object, found list)"):
        Case.read(tmp_path)


@pytest.mark.parametrize(
    ("options", "all_logits", "devices"),
    [
        (["--all-logits"], True, (1,)),
        (["--ndevice", "2"], False, (1, 2)),
        (["--ndevice", "2", "--no-single-device"], False, (2,)),
        (["--pipeline", "2"], False, (1,)),
    ],
)
def test_sizes_read_from_files_are_those_of_the_slots(tmp_path, monkeypatch, options, all_logits, devices):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    arguments = ["compile", str(CHECKPOINT), "-o", str(tmp_path), "-q", "--batch", "3", "--prefill-length", "16"]
    assert main([*arguments, "--context-length", "64", *options]) == 0
    package = Package.open(tmp_path)
    shape = Shape.read(package)
    slots = Slots.open(package, devices=range(max(devices)))
    found = (len(slots), slots.context_length, slots.row_bytes, slots.vocab_size, slots.all_logits)
    assert (shape.slots, shape.context, shape.row_bytes, shape.vocab_size, shape.all_logits) == found
    assert (shape.all_logits, shape.devices) == (all_logits, devices)


def test_what_has_no_caches_is_refused_with_its_name(tmp_path):
    (tmp_path / "x_prefill.hmm").touch()
    (tmp_path / "x_decode.hmm").touch()
    with pytest.raises(ValueError, match=r"x_decode\.hmm"):
        Shape.read(Package.open(tmp_path))


def test_a_package_that_returns_hidden_states_makes_vectors(tmp_path):
    arguments = ["compile", str(CHECKPOINT), "-o", str(tmp_path), "-q", "--prefill-length", "16", "--hidden-states"]
    assert main([*arguments, "--context-length", "64"]) == 0
    assert Shape.read(Package.open(tmp_path)).embeds
