"""Annotations and the stub of the compiled core, checked by mypy and against what is installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tcim_lite
from tcim_lite import _core

ROOT = Path(__file__).parent.parent
PACKAGE = Path(tcim_lite.__file__).parent
STUB = ast.parse((PACKAGE / "_core.pyi").read_text())
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


def test_the_package_and_a_users_script_pass_mypy_strict(tmp_path_factory):
    # The compilers of tcim_lite.models are scripts, not an API.
    modules = [path for path in PACKAGE.iterdir() if path.suffix in {".py", ".pyi"} or (path / "__init__.py").exists()]
    names = {f"tcim_lite.{path.stem}" for path in modules if path.stem not in {"models", "__init__"}}
    assert {"tcim_lite.runtime", "tcim_lite.hmm", "tcim_lite.errors", "tcim_lite._core"} <= names
    if np.lib.NumpyVersion(np.__version__) < "2.3.0":
        names = {"tcim_lite.runtime", "tcim_lite.errors"}  # what uses arrays inside is written for newer stubs of numpy
    packages = [word for name in sorted(names) for word in ("-p", name)]
    # Two calls: mypy takes either names or files.
    config = ("--config-file", ROOT / "pyproject.toml")
    found = mypy(tmp_path_factory, "mypy", *config, *packages)
    assert found.startswith("Success"), found
    found = mypy(tmp_path_factory, "mypy", *config, ROOT / "tests" / "typing" / "vendor_style.py")
    assert found.startswith("Success: no issues found in 1 source file"), found


def test_the_stub_lists_what_the_core_has(tmp_path_factory):
    found = mypy(tmp_path_factory, "mypy.stubtest", "--concise", "tcim_lite._core")
    lines = [line for line in found.splitlines() if line and not re.fullmatch(ALLOWED, line)]
    assert not lines, found


def signatures() -> list[tuple[str, list[str]]]:
    """Every function and method of the stub with the names of its parameters."""
    found = []
    for node in STUB.body:
        for item in node.body if isinstance(node, ast.ClassDef) else [node]:
            is_property = any(getattr(mark, "id", "") == "property" for mark in getattr(item, "decorator_list", []))
            if isinstance(item, ast.FunctionDef) and not is_property:
                path = item.name if item is node else f"{node.name}.{item.name}"
                found.append((path, [argument.arg for argument in (*item.args.args, *item.args.kwonlyargs)]))
    return found


@pytest.mark.parametrize(("path", "expected"), signatures(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_stub_names_the_parameters_of_the_core(path, expected):
    function = _core
    for part in path.split("."):
        function = getattr(function, part)
    # pybind11 writes the signature of each overload into the docstring.
    overloads = re.findall(rf"(?:^|\n)(?:\d+\. )?{path.split('.')[-1]}\((.*)\) -> ", function.__doc__)
    assert expected in [re.findall(r"(?:^|[ ,*])(\w+): ", overload) for overload in overloads]
