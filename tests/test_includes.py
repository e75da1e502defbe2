"""Every source compiles by itself: a unity build, as the package is, hides an include that is missing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cpp_programs import ROOT, run


@pytest.mark.build
def test_every_source_includes_what_it_uses(tmp_path):
    options = ["-DTCIM_LITE_PYTHON=OFF", "-DTCIM_LITE_UNITY=OFF", "-DTCIM_LITE_CUDA=OFF"]
    options += ["-DCMAKE_CXX_COMPILER_LAUNCHER=", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, *options)
    units = json.loads((tmp_path / "compile_commands.json").read_text())
    units = [unit for unit in units if "kernels" not in Path(unit["file"]).parts]  # one by one in every build
    assert len(units) > 100

    def errors(unit: dict) -> str:
        command = [*shlex.split(unit["command"]), "-fsyntax-only", "-w"]
        return subprocess.run(command, cwd=unit["directory"], capture_output=True, text=True, timeout=300).stderr

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        assert [text for text in pool.map(errors, units) if text] == []
