"""Every source includes what it uses: a unity build, as the package is, hides an include that is missing.

What the text of a source shows is compared every time; that each source compiles by itself is part of `make test-all`.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cpp_programs import ROOT, compile_commands, run
from include_names import Sources

CSRC = ROOT / "csrc"
COMPILER = [os.environ.get("CXX", "c++"), "-std=c++20", "-w"]
# Sets of standard headers that are compiled before the sources: each takes as long as four sources.
PRECOMPILED = 5


@functools.cache
def leading_headers(file: Path) -> frozenset[str]:
    """Headers of C++ that a file includes before any line of ours: with them in front, it means what it did."""
    found: set[str] = set()
    for line in file.read_text(encoding="utf-8").splitlines():
        if match := re.match(r'#include "(.*)"', line):
            paths = [folder / match[1] for folder in (CSRC, file.parent) if (folder / match[1]).exists()]
            return frozenset(found).union(*map(leading_headers, paths[:1]))
        if match := re.match(r"#include <(\w+)>", line):
            found.add(match[1])
        elif not re.match(r"(//.*|#pragma once|#include <.*>)?$", line):
            break
    return frozenset(found)


def sets_to_precompile(sources: list[frozenset[str]]) -> list[frozenset[str]]:
    """Sets of headers of which some source includes each whole set, chosen by how many headers that saves."""
    chosen: list[frozenset[str]] = []

    def left(kept: list[frozenset[str]]) -> int:
        return sum(len(needed) - len(best(kept, needed)) for needed in sources) + sum(map(len, kept))

    for _ in range(PRECOMPILED):
        chosen.append(min(set(sources), key=lambda more: (left([*chosen, more]), sorted(more))))
    return chosen


def best(sets: list[frozenset[str]], needed: frozenset[str]) -> frozenset[str]:
    """The largest of the sets that has nothing which a source does not include."""
    return max((one for one in sets if one <= needed), key=len, default=frozenset())


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
        "good.cpp": '#include "board.h"\n\nint f(const Later& a) { std::vector<int> b(kRows); }  // std::map\n',
        "bad.cpp": '#include <string>\n\nstd::string f(const Board& a) { return std::min("std::set", kRows); }\n',
        "new.cpp": "void f() { std::brandnew(); }\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = Sources([tmp_path], sorted(tmp_path.iterdir()))
    assert list(found.missing(tmp_path / "good.cpp")) == []
    assert list(found.missing(tmp_path / "bad.cpp")) == ["std::min: <algorithm>", "Board: board.h", "kRows: board.h"]
    (unknown,) = found.missing(tmp_path / "new.cpp")
    assert "std::brandnew, of which include_names.py does not know the header" in unknown


@pytest.mark.build
@pytest.mark.grid
def test_every_source_compiles_by_itself(tmp_path):
    units = [
        unit for unit in compile_commands("native")[1] if "kernels" not in Path(unit["file"]).parts
    ]  # one by one in every build
    assert len(units) > 100
    sets = sets_to_precompile([leading_headers(Path(unit["file"])) for unit in units])
    texts = {headers: "".join(f"#include <{name}>\n" for name in sorted(headers)) for headers in sets}
    files = {headers: tmp_path / f"set_{index}.h" for index, headers in enumerate(texts)}

    def precompile(headers: frozenset[str]) -> None:
        files[headers].write_text(texts[headers])
        run(*COMPILER, "-x", "c++-header", files[headers], "-o", f"{files[headers]}.gch")

    def errors(unit: dict) -> str:
        words = shlex.split(unit["command"])
        command = [*COMPILER, "-fsyntax-only", *(word for word in words if word.startswith(("-D", "-I"))), unit["file"]]
        if headers := best(sets, leading_headers(Path(unit["file"]))):
            command += ["-include", files[headers]]
        return subprocess.run(command, cwd=unit["directory"], capture_output=True, text=True, timeout=300).stderr

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(precompile, files))
        assert [text for text in pool.map(errors, units) if text] == []


def test_no_source_includes_ranges():
    """clang 14 and 15 cannot compile libstdc++'s (docs/developing.md)."""
    sources = [path for path in CSRC.rglob("*") if path.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    assert len(sources) > 300
    assert [path for path in sources if "#include <ranges>" in path.read_text(encoding="utf-8")] == []


def test_a_header_gets_nothing_that_its_source_includes_behind_it(tmp_path):
    (tmp_path / "a.h").write_text("// A.\n#pragma once\n\n#include <vector>\n\nint a();\n#include <map>\n")
    (tmp_path / "a.cpp").write_text('#include "a.h"\n\n#include <unistd.h>\n\n#include <string>\n')
    assert leading_headers(tmp_path / "a.cpp") == {"vector"}
    (tmp_path / "main.cpp").write_text('#include <cstdio>\n#include <unistd.h>\n#include <string>\n\n#include "a.h"\n')
    assert leading_headers(tmp_path / "main.cpp") == {"cstdio", "string", "vector"}
