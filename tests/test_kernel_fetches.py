"""The kernels that stream weights fetch them ahead in the objects that are shipped, not only in their source.

A compiler may drop a fetch, because it changes nothing: gcc 12 did so with calls to a function that only fetches.
"""

from __future__ import annotations

import platform
import re
import shutil

import package_build
import pytest

pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 kernels fetch ahead"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump: apt install binutils"),
]
LINES = {"W4": 8, "W8": 16}  # of 64 bytes, the codes of a group of a block
PASSES = {("avx2", "W8"): 8, ("avx512", "W8"): 8}  # of a loop over a group; the other kernels are unrolled
FUNCTIONS = {
    "avx2": {"W4": "tile_of_few<Nibbles<W4, 5>, {rows}>", "W8": "tile<W8, {rows}, true>"},
    "avxvnni": {format: f"tile<{format}, {{rows}}, true>" for format in LINES},
    "avx512": {format: f"few_rows<{format}, {{rows}}>" for format in LINES},
    "avx512vnni": {format: f"few_rows<{format}, {{rows}}, true>" for format in LINES},
}


@pytest.fixture(scope="module")
def fetches():
    """By kernel set: how often each function fetches, by the function's name without its namespaces."""
    folder = package_build.package_build() / "csrc/backends/cpu/CMakeFiles"
    found = {}
    for isa in FUNCTIONS:
        objects = folder / f"tcim_lite_kernels_{isa}.dir/kernels/linear_quant_{isa}.cpp.o"
        if not objects.exists():
            continue  # the compiler is too old for this set
        counts, name = {}, ""
        for line in package_build.run("objdump", "-dC", "--no-show-raw-insn", objects).splitlines():
            if function := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
                name = re.sub(r"tcim_lite::cpu::|\(anonymous namespace\)::|^void |\(.*", "", function[1])
            counts[name] = counts.get(name, 0) + ("prefetch" in line)
        found[isa] = counts
    return found


@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize("format", LINES)
def test_kernels_of_few_rows_fetch_every_line_of_codes(fetches, format, rows):
    names = {isa: FUNCTIONS[isa][format].format(rows=rows) for isa in fetches}
    counts = {isa: fetches[isa].get(name, 0) for isa, name in names.items()}
    lines = {isa: LINES[format] // PASSES.get((isa, format), 1) for isa in fetches}
    assert {isa: count for isa, count in counts.items() if count <= lines[isa]} == {}, "a line of scales comes too"


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("format", LINES)
def test_one_and_two_rows_fetch_every_line_of_codes_where_no_dot_product_is(fetches, format, rows):
    lines = LINES[format] // PASSES.get(("avx2", format), 1)
    assert fetches["avx2"][FUNCTIONS["avx2"][format].format(rows=rows)] > lines, "a line of scales comes too"
