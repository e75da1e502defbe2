"""The sources are as the formatters of .pre-commit-config.yaml leave them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CPP = {".cpp", ".cu", ".cuh", ".h"}


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess:
    program = Path(sys.executable).parent / name
    return subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", ["ruff", "clang-format"])
def test_the_formatters_are_those_of_pre_commit(name):
    config = (ROOT / ".pre-commit-config.yaml").read_text()
    pinned = re.search(rf"/(?:mirrors-)?{name}(?:-pre-commit)?\n +rev: v(\S+)", config)
    assert pinned is not None
    assert version(name) == pinned[1]


@pytest.mark.parametrize("command", [("check",), ("format", "--check")])
def test_python_is_as_ruff_wants_it(command):
    done = run("ruff", *command, "--no-cache", ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_cpp_is_as_clang_format_leaves_it():
    folders = [ROOT / name for name in ("benchmarks", "csrc", "examples", "tests")]
    sources = [path for folder in folders for path in folder.rglob("*") if path.suffix in CPP]
    assert len(sources) > 400
    done = run("clang-format", "--dry-run", "--Werror", *sources)
    assert done.returncode == 0, done.stderr
