"""Builds C++ programs against the SDK of the installed package, as its users do, and runs them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fuzzing
import pytest

from tcim_lite.conformance import cpp_programs
from tcim_lite.conformance.checks import NotRunError

ROOT = Path(__file__).parent.parent
# cmake and ninja come with the test environment; the machine itself may have none.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

# The tests of kernels, with arguments that keep an emulated run short: fewer sizes of attention, every 100003rd float
# into exp.
EMULATED_KERNELS = {
    "kernels_attention_test": ["quick"],
    "kernels_elementwise_test": [],
    "kernels_exp_test": ["100003"],
    "kernels_linear_attention_test": [],
    "kernels_linear_test": [],
    "kernels_network_test": [],
    "kernels_ops_test": [],
    "kernels_rows_test": [],
    "kernels_windows_test": [],
}


def run(*command: str | Path, env: dict[str, str] | None = None, text: str | None = None) -> str:
    """Runs a command; what it printed is the message of a failure."""
    environment = {**os.environ, "PATH": PATH, "PYTHONSAFEPATH": "1", **(env or {})}
    # Not in the checkout, whose tcim_lite has no compiled core.
    result = subprocess.run(
        command, cwd="/", input=text, capture_output=True, text=True, encoding="utf-8", timeout=1200, env=environment
    )
    assert result.returncode == 0, f"{command[0]} exits {result.returncode}:\n{(result.stdout + result.stderr)[-8000:]}"
    return result.stdout


def porting_program(folder: Path, name: str) -> Path:
    """Returns a program of tests/porting, built as the vendor builds its own."""
    try:
        cpp_programs.compiler()
    except NotRunError as error:
        pytest.skip(str(error))
    source = ROOT / "tests/porting" / f"{name}.cpp"
    return cpp_programs.build(cpp_programs.sdk_folder(None), folder, name, [source], "-std=c++17", "-w", "-O1")


def caller(sdk: Path, folder: Path, source: str) -> Path:
    """Returns a small program of a test, built with the machine's own compiler."""
    (folder / "caller.cpp").write_text(source)
    options = [f"-I{sdk}/include", f"-L{sdk}/lib", f"-Wl,-rpath,{sdk}/lib", "-ltcim_runtime_lite"]
    run("c++", "-std=c++17", folder / "caller.cpp", *options, "-o", folder / "caller")
    return folder / "caller"


# For programs of examples/cpp, where the compiler takes longer than the tests.
UNOPTIMISED = "-DCMAKE_CXX_FLAGS_RELEASE=-O0"


def build(source: Path, folder: Path, *options: str, env: dict[str, str] | None = None, targets: tuple = ()) -> Path:
    """Configures and builds `targets`, by default all; returns the build folder."""
    ninja = ["-G", "Ninja"] if shutil.which("ninja", path=PATH) and not (folder / "CMakeCache.txt").exists() else []
    run("cmake", "-S", source, "-B", folder, *ninja, *options, env=env)
    jobs = str(len(os.sched_getaffinity(0)))
    run("cmake", "--build", folder, "--parallel", jobs, *(part for name in targets for part in ("--target", name)))
    return folder


@functools.cache
def compile_commands(toolchain: str, *options: str) -> tuple[Path, list[dict[str, str]]]:
    """How a build of the core compiles each source by itself: the build folder, and what CMake writes of it."""
    folder = ROOT / "build/cpp-tests" / toolchain
    sources = ("-DTCIM_LITE_PYTHON=OFF", "-DTCIM_LITE_CUDA=OFF", "-DTCIM_LITE_UNITY=OFF", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "-S", ROOT, "-B", folder, *sources, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options)
    return folder, json.loads((folder / "compile_commands.json").read_text())


def sanitized(*targets: str, objects: Path | None = None) -> Path:
    """Builds targets of the core with sanitizers: one build for the test programs and the fuzz targets.

    `objects`: where another build has those of the tests of kernels, in which sanitizers are off.

    Where clang++ makes fuzz targets it is theirs, whose SIMD kernels are not instrumented; else the default compiler's.
    """
    folder = ROOT / "build/cpp-tests"
    options = [f"-DTCIM_LITE_TEST_OBJECTS={objects}"] if objects else []
    if fuzzing.can_build():
        return build(ROOT, folder / "fuzz", *fuzzing.CONFIGURE, *options, targets=targets)
    return build(ROOT, folder / "sanitized", *fuzzing.SANITIZED, *options, targets=targets)


@pytest.fixture(scope="session")
def cpp_examples(sdk: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of examples/cpp, which find the SDK by its CMake package."""
    folder = tmp_path_factory.mktemp("examples")
    return build(ROOT / "examples/cpp", folder, UNOPTIMISED, f"-DCMAKE_PREFIX_PATH={sdk}")


def facade_programs(sdk: Path, *targets: str) -> Path:
    """Builds the programs of tests/facade; the folder is kept between runs."""
    # By name, because a cached find_package would stay with the SDK of the environment before.
    options = [f"-Dtcim_runtime_lite_DIR={sdk}/lib/cmake/tcim_runtime_lite", f"-DEXAMPLES={ROOT / 'examples/cpp'}"]
    return build(ROOT / "tests/facade", ROOT / "build/facade-tests", *options, targets=targets)


@pytest.fixture(scope="session")
def sdk() -> Path:
    """The folder that `tcim-lite sdk-path` prints."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        pytest.skip("no C++ compiler")
    code = "import sys; from tcim_lite.cli import main; sys.exit(main(['sdk-path']))"
    return Path(run(sys.executable, "-c", code).strip())
