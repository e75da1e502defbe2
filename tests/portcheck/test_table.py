"""Every API call has one status, at its definition in Python or in the table of what is not there."""

from __future__ import annotations

import enum
import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest

import tcim_lite.dev_ctrl as dev_ctrl
import tcim_lite.runtime as runtime
from tcim_lite.cli import main
from tcim_lite.portcheck.api import CPP, ENTRIES, PYTHON, STATUSES, Entry, page

ROOT = Path(__file__).parents[2]


def public_names(module, prefix: str) -> set[str]:
    """Names of a module, and members of its classes but for those of Python's own bases."""
    names = set()
    for name in module.__all__:
        names.add(prefix + name)
        kind = getattr(module, name)
        if inspect.isclass(kind) and not issubclass(kind, (enum.Enum, BaseException)) and name != "MemInfo":
            names |= {f"{prefix}{name}.{member}" for member in vars(kind) if not member.startswith("_")}
    return names


CPP_HEADERS = {"tcim_runtime.h": "", "tcim_dev_ctrl.h": "dev_ctrl::", "tcim_image_process.h": "ImageOps::"}


def cpp_names() -> set[str]:
    return set().union(*(header_names(*header) for header in CPP_HEADERS.items()))


def header_names(header: str, namespace: str) -> set[str]:
    """Classes, functions and methods of a public header."""
    text = re.sub(r"//[^\n]*", "", (ROOT / "csrc/facade/include/tcim" / header).read_text())
    names, classes = set(), []
    inner = namespace.rstrip(":").rpartition("::")[2] or "tcim"
    depth = text[: text.index(f"namespace {inner} {{")].count("{")
    for line in text.splitlines():
        opened = re.match(r"\s*(?:class|struct|enum)\s+(?:TCIM_API\s+)?(\w+)[^;]*\{", line)
        if opened:
            classes.append((opened[1], depth))
            if not line.strip().startswith("struct Access"):
                names.add(namespace + "::".join(name for name, _ in classes))
        method = re.match(r"\s+(?:static |virtual )?[\w:<>,\s&*]+?[\s&*]([A-Z]\w+)\(", line)
        if method and classes and method[1] != classes[-1][0]:
            names.add(namespace + "::".join([*(name for name, _ in classes), method[1]]))
        free = re.match(r"TCIM_API [\w:]+ (\w+)\(|constexpr \w+ (\w+)|using (\w+)", line)
        if free:
            names.add(namespace + next(group for group in free.groups() if group))
        depth += line.count("{") - line.count("}")
        while classes and depth <= classes[-1][1]:
            classes.pop()
    return {name for name in names if not name.startswith("internal")}


def test_every_public_name_of_the_python_api_has_a_status():
    names = public_names(runtime, "") | public_names(dev_ctrl, "dev_ctrl.")
    assert len(names) > 90
    assert names - PYTHON.keys() == set()


def test_every_public_name_of_the_cpp_api_has_a_status():
    names = cpp_names()
    assert names >= {"Module::Run", "Module::Option::SetDummyTensors", "dev_ctrl::HalDevice::IpuReset"}
    assert names >= {"ImageOps::Resizer::RunOption::SetPad", "ImageOps::Resizer::EnAlignMode"}
    assert len(names) > 130
    assert names - CPP.keys() == set()


def test_statuses_name_nothing_that_does_not_exist():
    python = public_names(runtime, "") | public_names(dev_ctrl, "dev_ctrl.")
    cpp = cpp_names()
    for headers in ("csrc/hal/include", "csrc/facade/include/tcim"):
        cpp |= {path.name for path in (ROOT / headers).iterdir()}
    for entry in ENTRIES:
        module = entry.python.split(".")[0] in ("hmatc", "pytcim", "tcim", "tcim_lite")
        there = (entry.python in python or module or not entry.python) and (entry.cpp in cpp or not entry.cpp)
        assert there == (entry.status != "missing") or (module and entry.status == "missing"), entry


def test_every_status_is_a_known_one_and_explains_itself():
    assert len(ENTRIES) == len(set(ENTRIES))
    for entry in ENTRIES:
        assert entry.status in STATUSES, entry
        assert bool(entry.text) == (entry.status != "exact"), entry
        assert bool(entry.section) == (entry.status != "extension"), entry
    names = [name for entry in ENTRIES for name in (entry.python, entry.cpp) if name]
    assert len(names) == len(PYTHON) + len(CPP)


def test_a_mark_says_what_is_known_of_a_call():
    assert PYTHON["Module.get_num_inputs"] == Entry(
        "Module.get_num_inputs", "Module::GetInputNum", "exact", "7.1", "", "int"
    )
    assert PYTHON["Module.taps"].status == "extension"
    assert PYTHON["Tensor.cast"] == replace(PYTHON["Tensor.astype"], python="Tensor.cast", cpp="")
    assert PYTHON["Module.close"] == replace(
        PYTHON["Module.release"], python="Module.close", text="another name of release"
    )
    assert PYTHON["dev_ctrl.HalDeviceFactory.create"].result == "dev_ctrl.HalDevice"
    assert CPP["Status"] is PYTHON["Status"]  # dev_ctrl has it, too


def test_the_page_lists_the_statuses():
    found = (ROOT / "docs/api-status.md").read_text(encoding="utf-8")
    assert found == page(), "write it again: tcim-lite port-check --table > docs/api-status.md"


@pytest.mark.parametrize("words", [["--json"], ["program.py"], ["--run"]])
def test_the_table_is_asked_for_alone(capsys, words):
    assert main(["port-check", "--table", *words]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "",
        "error: --table prints the status of every call as Markdown; give it alone\n",
    )
