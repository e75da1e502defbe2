"""Annotations and the stub of the compiled core, checked by mypy and against what is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from imported import imported

import tcim_lite

ROOT = Path(__file__).parent.parent
PACKAGE = Path(tcim_lite.__file__).parent
# pybind11 classes have their own metaclass, and those Python cannot make have object's __init__.
ALLOWED = r"\S+ is inconsistent, metaclass differs|\S+\.__init__ is inconsistent, stub does not have \*args .*"


def mypy(tmp_path_factory, *arguments: str | Path) -> str:
    """What mypy prints; away from the checkout, so that it sees the installed package."""
    folder = tmp_path_factory.getbasetemp()
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_the_package_and_a_users_script_pass_mypy_strict(tmp_path_factory, monkeypatch):
    modules = [path for path in PACKAGE.iterdir() if path.suffix in {".py", ".pyi"} or (path / "__init__.py").exists()]
    names = {f"tcim_lite.{path.stem}" for path in modules if path.stem != "__init__"}
    assert {"tcim_lite.runtime", "tcim_lite.hmm", "tcim_lite.models", "tcim_lite._core"} <= names
    if np.lib.NumpyVersion(np.__version__) < "2.3.0":
        names = {"tcim_lite.runtime", "tcim_lite.errors"}  # what uses arrays inside is written for newer stubs of numpy
    packages = [word for name in sorted(names) for word in ("-p", name)]
    # What it knows of numpy and of modules that did not change is kept between runs.
    config = ("--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / "build/mypy")
    monkeypatch.setenv("MYPYPATH", str(ROOT / "tests/typing"))  # mypy takes either names or files
    found = mypy(tmp_path_factory, "mypy", *config, *packages, "-m", "vendor_style")
    assert found.startswith("Success"), found


@pytest.mark.slow
def test_the_stub_lists_what_the_core_has(tmp_path_factory):
    found = mypy(tmp_path_factory, "mypy.stubtest", "--concise", "tcim_lite._core")
    lines = [line for line in found.splitlines() if line and not re.fullmatch(ALLOWED, line)]
    assert not lines, found


def test_the_stub_is_what_the_bindings_make():
    make_stub = imported(ROOT / "csrc/bindings/make_stub.py")
    assert make_stub.STUB.read_text() == make_stub.stub(), "run `make docs`"
