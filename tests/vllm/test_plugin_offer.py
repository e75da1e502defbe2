"""When the plugin offers itself, and what it reads of a package: needs no vLLM."""

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from tcim_lite import vllm as plugin
from tcim_lite.vllm.load_format import check_load_format

PLATFORM = "tcim_lite.vllm.platform.TcimPlatform"


@pytest.fixture
def machine(monkeypatch):
    """A vLLM whose own platforms are as given."""
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # so that it is undone, whatever a test sets
    monkeypatch.delenv("PYTHONSAFEPATH")

    def make(**platforms):
        module = ModuleType("vllm.platforms")
        module.builtin_platform_plugins = {name: lambda found=found: found for name, found in platforms.items()}
        monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
        monkeypatch.setitem(sys.modules, "vllm.platforms", module)

    return make


def test_it_offers_itself_where_nothing_else_could_work(machine):
    machine(cuda=None, cpu=None)
    assert plugin.register() == PLATFORM


def test_it_leaves_a_machine_with_a_platform_alone_unless_named(machine, monkeypatch):
    machine(cuda="vllm.platforms.cuda.CudaPlatform", cpu=None)
    assert plugin.register() is None
    monkeypatch.setenv("VLLM_PLUGINS", "tcim_lite")
    assert plugin.register() == PLATFORM


def test_it_leaves_a_machine_with_another_plugin_alone(machine, monkeypatch):
    machine(cuda=None)
    other = EntryPoint("spyre", "x:register", "vllm.platform_plugins")
    monkeypatch.setattr(plugin, "entry_points", lambda group: [other])
    assert plugin.register() is None


def test_what_vllm_starts_does_not_import_sources_from_the_working_folder(machine, monkeypatch, tmp_path):
    machine(cuda=None)
    monkeypatch.chdir(tmp_path)
    plugin.register()
    assert "PYTHONSAFEPATH" not in os.environ
    (tmp_path / "tcim_lite").mkdir()
    plugin.register()
    assert os.environ["PYTHONSAFEPATH"] == "1"


def test_the_entry_point_and_the_pin_are_those_of_the_code():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points."vllm.platform_plugins"]\ntcim_lite = "tcim_lite.vllm:register"\n' in text
    assert f'\nvllm = ["vllm=={plugin.VERSION}*"]\n' in text


def test_a_format_of_weights_is_refused_by_name():
    check_load_format("auto")
    with pytest.raises(ValueError, match=r"load_format=dummy: .* compile with --random-weights"):
        check_load_format("dummy")
    with pytest.raises(ValueError, match=r"load_format=safetensors: the weights .*leave it out$"):
        check_load_format("safetensors")
