"""The CUDA backend compiles, for one architecture, where nvcc is on the PATH; no GPU is needed."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from cpp_programs import run

import tcim_lite

CSRC = Path(__file__).parent.parent / "csrc"
BACKEND = CSRC / "backends" / "cuda"
KERNELS = sorted(BACKEND.rglob("*.cu"))
NVCC = shutil.which("nvcc")
OUTSIDE = ("algorithm", "map", "memory", "optional", "span", "string", "variant", "vector", "cuda_runtime_api.h")

pytestmark = [pytest.mark.build, pytest.mark.skipif(NVCC is None, reason="nvcc is not on the PATH")]


def compile_with(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


def traps(source: Path, folder: Path) -> list[str]:
    """Compiles device code and returns the traps in what ptxas reads.

    nvcc puts one, without a word, where device code reads a constant that is only in the host's memory.
    """
    options = ("-std=c++20", "--extended-lambda", "--expt-relaxed-constexpr", "-Werror=all-warnings")
    target = "-gencode=arch=compute_90a,code=sm_90a"  # of all architectures the one that no guard leaves out
    # The front end reports errors before it optimises. Without unrolled loops ptxas has a fifth to read; builds of the
    # backend do the rest.
    quick = ("-Xcicc=-O1", "-Xptxas=-O0")
    kept = ("-keep", "-keep-dir", folder)
    compile_with(NVCC, *options, target, *quick, "-cubin", *kept, f"-I{CSRC}", source, "-o", folder / "kernel.cubin")
    (ptx,) = folder.glob("*.ptx")
    return re.findall(r"^\s*trap;", ptx.read_text(), re.MULTILINE)


def half_of_decode(source: Path, folder: Path) -> Path:
    """A copy of the decode's kernels without half of their instances, which are the rest over again.

    Left out are those of 8-bit weights, which the router of an MoE of 4-bit weights has too, and those of one row by
    twice as many warps.
    """
    left_out = ("_format<WeightFormat::LinearW8>(", "<KernelShape<Format, 1, kMostWarps>>(")
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not any(text in line for text in left_out)]
    assert len(lines) - len(kept) == 4, "launch and prepare of each"
    copy = folder / source.name
    copy.write_text("".join(kept), encoding="utf-8")
    return copy


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_a_kernel_compiles(kernel, tmp_path):
    source = half_of_decode(kernel, tmp_path) if kernel == BACKEND / "decode/kernel.cu" else kernel
    assert traps(source, tmp_path) == []


def test_a_constant_of_the_host_would_be_found(tmp_path):
    (tmp_path / "table.cu").write_text(
        "constexpr int kTable[] = {1, 2};\nconstexpr int at(int i) { return kTable[i]; }\n"
        "__global__ void read(int* y, int i) { *y = at(i); }\n"
    )
    assert traps(tmp_path / "table.cu", tmp_path) != []


@pytest.fixture(scope="module")
def configured(tmp_path_factory) -> tuple[Path, Path]:
    """How CMake would build the backend for two architectures, and a folder that nvcc's options name."""
    folder, build = tmp_path_factory.mktemp("static"), tmp_path_factory.mktemp("configured")
    (folder / "libstdc++.a").write_bytes(b"!<arch>\n")
    options = ("-DTCIM_LITE_CUDA=ON", "-DTCIM_LITE_CUDA_ARCHITECTURES=80;90", "-DTCIM_LITE_PYTHON=OFF")
    environment = {"CUDACXX": NVCC, "NVCC_APPEND_FLAGS": f"-L{folder}"}
    run("cmake", "-G", "Unix Makefiles", *options, "-S", CSRC.parent, "-B", build, env=environment)
    return build, folder


def test_hopper_without_its_suffix_gets_the_instructions_of_90a(configured):
    """By its plain number it would run, at half of its speed and without a word."""
    (flags,) = configured[0].rglob("tcim_backend_cuda.dir/flags.make")
    built = set(re.findall(r",code=\[?([a-z0-9_,]+)", flags.read_text()))
    assert built == {"compute_80,sm_80", "sm_90a", "compute_90"}


def symbols(kind: str, path: Path) -> set[str]:
    """Names of the core's namespace without that of the backend, which `nm kind` prints."""
    printed = subprocess.run(["nm", kind, "-P", path], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].split("@")[0] for line in printed.splitlines()}
    return {name for name in names if "9tcim_lite" in name and "9tcim_lite4cuda" not in name}


def compilers_command() -> list[str]:
    """What nvcc would run to compile a source of the host, without the source and its object."""
    options = ("-std=c++20", "-O0", "-Xcompiler", "-Wall,-Wextra,-Werror", f"-I{CSRC}")
    files = ["source.cpp", "-o", "object.o"]
    done = subprocess.run([NVCC, "--dryrun", *options, "-c", *files], capture_output=True, text=True, check=True)
    words = shlex.split(done.stderr.splitlines()[-1].removeprefix("#$ "))
    assert words[-3:] == files
    return words[:-3]


def precompiled(folder: Path, command: list[str]) -> list[str]:
    """Options that include the headers of others, which are half of what the compiler reads.

    A source that forgets one of these compiles here; a build of the backend says so.
    """
    header = folder / "outside.h"
    header.write_text("".join(f"#include <{name}>\n" for name in OUTSIDE))
    kind = command.index("c++", command.index("-x"))
    compile_with(*command[:kind], "c++-header", *command[kind + 1 :], header, "-o", f"{header}.gch")
    return ["-include", str(header)]


def test_the_host_side_compiles_and_calls_only_what_the_core_exports(tmp_path):
    needed, defined = set(), symbols("-D", Path(tcim_lite.__file__).parent / "lib/libtcim_runtime_lite.so")
    command = compilers_command()
    command += precompiled(tmp_path, command)
    for index, source in enumerate(sorted(BACKEND.rglob("*.cpp"))):
        compile_with(*command, source, "-o", tmp_path / f"{index}.o")
        needed |= symbols("-u", tmp_path / f"{index}.o")
        defined |= symbols("--defined-only", tmp_path / f"{index}.o")
    assert needed
    assert needed <= defined, "list it in csrc/facade/exports.map.in"


def test_cmake_builds_every_source():
    """A source that CMake does not know is not in the library."""
    (listed,) = re.findall(r"add_library\(tcim_backend_cuda SHARED([^)]*)\)", (BACKEND / "CMakeLists.txt").read_text())
    sources = [path for kind in ("*.cpp", "*.cu") for path in BACKEND.rglob(kind)]
    assert {path.relative_to(BACKEND).as_posix() for path in sources} == set(listed.split())


def test_the_library_gets_no_cpp_runtime_of_its_own(configured):
    """nvcc's host compiler may look into folders that hold a static one; a second one breaks every number printed."""
    build, folder = configured
    (link,) = build.rglob("tcim_backend_cuda.dir/link.txt")
    assert "libtcim_runtime_lite.so" in link.read_text()
    assert str(folder) not in link.read_text()
