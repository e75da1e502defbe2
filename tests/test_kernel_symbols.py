"""No kernel object may share code with other files: each defines one function for the linker, its entry in the table.

Of an external inline function (a template, a std:: helper, a function of a header) the linker keeps one copy for all
files. If that copy comes from a kernel file, every caller gets instructions that its CPU may lack. Kernels are compiled
here with the flags of the build but at -O0, where no such function hides by being inlined.
"""

from __future__ import annotations

import concurrent.futures
import os
import platform
import re
import shlex
import shutil
from pathlib import Path

import cpp_programs
import pytest

pytestmark = pytest.mark.build

ROOT = Path(__file__).parent.parent
TOOLCHAINS = {
    "native": ([], "nm"),
    "aarch64": ([f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'tests/cpp/aarch64.cmake'}"], "aarch64-linux-gnu-nm"),
}
EXPECTED = {"x86_64": {"avx2", "avx512", "avx512vnni"}, "aarch64": {"neon", "neondotprod"}}
# Letters of nm for symbols that stay in their object.
LOCAL = set("tdbrn")


class Kernels:
    """The compile commands of one toolchain, and the symbols they give."""

    def __init__(self, toolchain: str, folder: Path) -> None:
        options, self._nm = TOOLCHAINS[toolchain]
        self._folder = folder
        self.commands = {}  # (kernel, isa) -> (command without its source and output, source)
        for entry in cpp_programs.compile_commands(toolchain, *options)[1]:
            target = re.search(r"tcim_lite_kernels_(\w+)\.dir", entry["command"])
            if target and target[1] != "ref":  # ref has the flags of everything else
                command, source = shlex.split(entry["command"]), Path(entry["file"])
                output = command.index("-o")
                del command[output : output + 2], command[command.index(entry["file"])]
                self.commands[source.stem.removesuffix(f"_{target[1]}"), target[1]] = command, source
        self._headers = {isa: self._precompiled(isa) for isa in sorted({isa for _, isa in self.commands})}

    def _precompiled(self, isa: str) -> list[str | Path]:
        """The options that include immintrin.h, without which a small kernel takes twice as long."""
        kernels = [command for (_, other), (command, _) in self.commands.items() if other == isa]
        if len(kernels) < 5 or "-mavx2" not in kernels[0]:
            return []
        header = self._folder / f"{isa}.h"
        header.write_text("#include <immintrin.h>\n")
        cpp_programs.run(*kernels[0], "-O0", "-x", "c++-header", header, "-o", f"{header}.gch")
        return ["-include", header]

    def symbols(self, kernel: str, isa: str, source: Path | None = None) -> list[str]:
        """What the object of a kernel, or of another source with its flags, shows the linker: 'letter name'."""
        command, own = self.commands[kernel, isa]
        output = self._folder / f"{(source or own).stem}.{isa}.o"
        cpp_programs.run(*command, "-O0", *self._headers[isa], source or own, "-o", output)
        lines = cpp_programs.run(self._nm, "--defined-only", "--demangle", output).splitlines()
        symbols = [line.split(maxsplit=1)[1] for line in lines if len(line.split()) > 2]
        return [symbol for symbol in symbols if symbol[0] not in LOCAL]


@pytest.fixture(scope="module", params=TOOLCHAINS)
def kernels(request, tmp_path_factory) -> Kernels:
    if request.param == "aarch64" and shutil.which("aarch64-linux-gnu-g++") is None:
        pytest.skip("no aarch64-linux-gnu-g++: apt install g++-aarch64-linux-gnu")
    made = Kernels(request.param, tmp_path_factory.mktemp(request.param))
    machine = platform.machine() if request.param == "native" else request.param
    assert EXPECTED.get(machine, set()) <= {isa for _, isa in made.commands}
    return made


def entry(kernel: str, isa: str) -> list[str]:
    function = f"use_{isa}" if kernel == "table" else f"use_{kernel}_{isa}"
    return [f"T tcim_lite::cpu::{function}(tcim_lite::cpu::KernelTable&)"]


def test_a_kernel_object_shows_the_linker_its_entry_alone(kernels):
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = dict(zip(kernels.commands, pool.map(lambda key: kernels.symbols(*key), kernels.commands), strict=True))
    assert {key: symbols for key, symbols in found.items() if symbols != entry(*key)} == {}


@pytest.mark.parametrize(
    ("line", "symbol"),
    [
        ("inline int64_t twice(int64_t n) { return 2 * n; }", "W tcim_lite::cpu::twice(long)"),
        ("template <typename N> N twice(N n) { return n + n; }", "W long tcim_lite::cpu::twice<long>(long)"),
        ("int64_t twice(int64_t n) { return 2 * n; }", "T tcim_lite::cpu::twice(long)"),
        ("inline int64_t twos = 2; int64_t& twice(int64_t) { return twos; }", "tcim_lite::cpu::twos"),
    ],
)
def test_shared_code_would_be_found(kernels, tmp_path, line, symbol):
    kernel, isa = next(key for key in kernels.commands if key[0] == "norm")
    source = tmp_path / "shared.cpp"
    use = f"void use_norm_{isa}(KernelTable& table) {{ table.many_from = twice(int64_t{{2}}); }}"
    header = '#include "backends/cpu/kernels/vector/simd.h"'
    source.write_text(f"{header}\nnamespace tcim_lite::cpu {{\n{line}\n{use}\n}}\n")
    symbols = kernels.symbols(kernel, isa, source)
    assert any(symbol in found for found in symbols), symbols
    assert entry(kernel, isa)[0] in symbols
