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
NUMBERS = {"1": "W4", "2": "W8"}  # of the enum WeightFormat, which names of functions have
# Of the enum WeightFetch, which they have too. From three rows on the first two are one function.
FETCHES = {"0": "", "1": "", "2": " into first"}
WAYS = [FETCHES["0"], FETCHES["2"]]  # of kernels of ymm registers
PASSES = {("avx512", "W8"): 8}  # of a loop over a group; the other kernels are unrolled
FUNCTIONS = {
    "avx2": {"W4": "tile_of_few<Nibbles<W4>, {rows}>", "W8": "tile_of_bytes<W8, {rows}, {pages}>"},
    "avxvnni": {format: f"few_rows<Ymm, {format}, {{rows}}>" for format in LINES},
    "avx512": {format: f"tile<{format}, {{rows}}, 1>" for format in LINES},
    "avx512vnni": {format: f"few_rows<Zmm, {format}, {{rows}}>" for format in LINES},
}


def fetches_of(isa: str, file: str) -> dict[str, int] | None:
    """How often each function of an object fetches, by its name without namespaces and with formats as in LINES; None
    without the object."""
    folder = package_build.package_build() / "csrc/backends/cpu/CMakeFiles"
    path = folder / f"tcim_lite_kernels_{isa}.dir/kernels/linear/{file}.cpp.o"
    if not path.exists():
        return None  # the compiler is too old for this set
    counts, name = {}, ""
    for line in package_build.run("objdump", "-dC", "--no-show-raw-insn", path).splitlines():
        if function := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
            short = re.sub(r"tcim_lite::(cpu::)?|\(anonymous namespace\)::|^void |^unsigned.*\* ", "", function[1])
            short = re.sub(
                r"[YZ]mmFormat<\(WeightFormat\)(\d+)(?:, \(WeightFetch\)(\d+))?>",
                lambda m: NUMBERS.get(m[1], m[0]) + FETCHES[m[2] or "0"],
                short,
            )
            name = re.sub(r" (?=>)|\(.*", "", short)
        counts[name] = counts.get(name, 0) + ("prefetch" in line)
    return counts


@pytest.fixture(scope="module")
def fetches():
    """fetches_of() the kernels of quantised weights, by kernel set."""
    found = {isa: fetches_of(isa, f"linear_quant_{isa}") for isa in FUNCTIONS}
    return {isa: counts for isa, counts in found.items() if counts is not None}


def function_of(isa: str, format: str, way: str, rows: int) -> str:
    """The name in fetches_of() of what multiplies so many rows by weights that are fetched in one of WAYS."""
    pages = "true" if rows <= 2 and not way else "false"
    tile = 2 if (isa, format, rows) == ("avx2", "W8", 4) else rows  # which are two tiles
    return FUNCTIONS[isa][format].replace(format, format + way).format(rows=tile, pages=pages)


@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", LINES)
def test_kernels_of_few_rows_fetch_every_line_of_codes(fetches, format, way, rows):
    fetches = {isa: counts for isa, counts in fetches.items() if not way or isa in ("avx2", "avxvnni")}
    names = {isa: function_of(isa, format, way, rows) for isa in fetches}
    counts = {isa: fetches[isa].get(name, 0) for isa, name in names.items()}
    lines = {isa: LINES[format] // PASSES.get((isa, format), 1) for isa in fetches}
    assert {isa: count for isa, count in counts.items() if count <= lines[isa]} == {}, "a line of scales comes too"


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", LINES)
def test_one_and_two_rows_fetch_every_line_of_codes_where_no_dot_product_is(fetches, format, way, rows):
    lines = LINES[format] // PASSES.get(("avx2", format), 1)
    assert fetches["avx2"][function_of("avx2", format, way, rows)] > lines, "a line of scales comes too"


@pytest.mark.parametrize("rows", [6, 7, 8])
def test_one_tile_of_4_bit_weights_fetches_a_line_of_each_block_at_a_step(fetches, rows):
    if "avx512vnni" not in fetches:
        pytest.skip("the compiler is too old for AVX-512 VNNI")
    count = fetches["avx512vnni"].get(f"tile_of_many<Zmm, W4, {rows}, ShortWay<W4, 2, 8>>", 0)
    assert count >= 4, "codes of two blocks in the loop over steps, and their scales"


def test_float_weights_are_fetched_where_no_avx512_is():
    counts = fetches_of("avx2", "linear_float")
    unfetched = [weights for weights in ("HalfWeights", "FloatWeights") if not counts.get(f"tile<{weights}, 1, 1>")]
    assert unfetched == []
