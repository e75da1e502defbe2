"""Every source includes what it uses: a unity build, as the package is, hides an include that is missing.

What the text of a source shows is compared every time; that each source compiles by itself is part of `make test-all`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cpp_programs import ROOT, compile_commands
from include_names import Sources

CSRC = ROOT / "csrc"
COMPILER = [os.environ.get("CXX", "c++"), "-std=c++20", "-w"]


def sources() -> Sources:
    files = [path for path in CSRC.rglob("*") if path.suffix in {".h", ".cpp"} and "cuda" not in path.parts]
    return Sources([CSRC, CSRC / "facade/include", CSRC / "hal/include"], files)


def test_every_source_includes_what_its_text_names():
    found = sources()
    units = [file for file in found.files if file.suffix == ".cpp" and "kernels" not in file.parts]
    assert len(units) > 100
    missing = {str(file.relative_to(CSRC)): names for file in units if (names := list(found.missing(file)))}
    assert missing == {}


def test_a_name_without_its_header_is_found(tmp_path):
    """Seen are headers of headers, but not those that another source of the unity build includes."""
    texts = {
        "kinds.h": "#include <vector>\n\nstruct Kind {\n  std::vector<int> sizes;\n};\nclass Later;\n",
        "board.h": '#include "kinds.h"\n\nclass API Board final {};\nconstexpr int kRows = 3;\nKind kind();\n',
        "good.cpp": '#include "board.h"\n\nint f(Later& a) { std::vector<int> b(kRows), c = kind(); }  // std::map\n',
        "bad.cpp": '#include <string>\n\nstd::string f(Board& a) { return std::min("std::set", kind(kRows)); }\n',
        "new.cpp": "void f() { std::brandnew(); }\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = Sources([tmp_path], sorted(tmp_path.iterdir()))
    assert list(found.missing(tmp_path / "good.cpp")) == []
    assert list(found.missing(tmp_path / "bad.cpp")) == [
        "std::min: <algorithm>",
        "Board: board.h",
        "kRows: board.h",
        "kind(: board.h",
    ]
    (unknown,) = found.missing(tmp_path / "new.cpp")
    assert "std::brandnew, of which include_names.py does not know the header" in unknown


@pytest.mark.build
@pytest.mark.grid
def test_every_source_compiles_by_itself():
    """Two minutes of a processor and more: what it finds besides are members and what the C library declares."""
    units = [
        unit for unit in compile_commands("native")[1] if "kernels" not in Path(unit["file"]).parts
    ]  # one by one in every build
    assert len(units) > 100

    def errors(unit: dict) -> str:
        options = [word for word in shlex.split(unit["command"]) if word.startswith(("-D", "-I"))]
        command = [*COMPILER, "-fsyntax-only", *options, unit["file"]]
        return subprocess.run(command, cwd=unit["directory"], capture_output=True, text=True, timeout=300).stderr

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        assert [text for text in pool.map(errors, units) if text] == []


def test_no_source_includes_ranges():
    """clang 14 and 15 cannot compile libstdc++'s (docs/developing.md)."""
    sources = [path for path in CSRC.rglob("*") if path.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    assert len(sources) > 300
    assert [path for path in sources if "#include <ranges>" in path.read_text(encoding="utf-8")] == []
