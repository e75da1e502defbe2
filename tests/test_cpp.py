"""The C++ test programs, with the objects of the package and with sanitizers; then the fuzz targets for a while.

The folders are the package's and build/cpp-tests of the checkout; they are kept between runs. TCIM_LITE_FUZZ_SECONDS
says how long to fuzz, default 60; 0 skips.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import cpp_programs
import fuzzing
import package_build
import pytest

pytestmark = pytest.mark.build

ROOT = Path(__file__).parent.parent
PROGRAMS = re.findall(r"^\s*tcim_lite_add_test\((\w+) ", (ROOT / "tests/cpp/CMakeLists.txt").read_text(), re.MULTILINE)
ENVIRONMENT = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}


def shipped() -> Path:
    """Adds the programs to the build of the package: what is tested are the objects that users get."""
    folder = package_build.package_build()
    package_build.run("cmake", "-S", ROOT, "-B", folder, "-DTCIM_LITE_TESTS=BY_NAME")
    package_build.run("cmake", "--build", folder, *(part for name in PROGRAMS for part in ("--target", name)))
    return folder


# Arguments of programs with sanitizers: which addresses exp uses does not depend on the values.
SHORTER = {"kernels_exp_test": ["4001"]}
VARIANTS = {"release": shipped, "sanitized": lambda: cpp_programs.sanitized(*PROGRAMS)}


def run(command: list[str | Path], timeout: float = 1200) -> str:
    """Runs a command; what it printed is the message of a failure."""
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, env=ENVIRONMENT
    )
    assert result.returncode == 0, f"{command[0]} exits {result.returncode}:\n{result.stdout[-8000:]}"
    return result.stdout


@pytest.fixture(scope="module", params=VARIANTS)
def command(request: pytest.FixtureRequest) -> Callable[[str], list[str | Path]]:
    """command(program) -> the command line that runs it."""
    folder = VARIANTS[request.param]() / "bin"
    arguments = SHORTER if request.param == "sanitized" else {}
    return lambda program: [folder / program, *arguments.get(program, ())]


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(command, program):
    run(command(program), timeout=600)


@pytest.mark.slow
def test_fuzz(tmp_path, capsys):
    seconds = int(os.environ.get("TCIM_LITE_FUZZ_SECONDS", "60"))
    if seconds == 0:
        pytest.skip("TCIM_LITE_FUZZ_SECONDS is 0")
    if not fuzzing.can_build():
        pytest.skip("clang++ with libFuzzer is missing")
    programs = cpp_programs.sanitized(*fuzzing.TARGETS) / "bin"
    limit = f"-max_total_time={max(1, seconds // len(fuzzing.TARGETS))}"
    jobs = fuzzing.fuzz(programs, tmp_path, [limit], share=0, jobs=1, seed=1)
    assert fuzzing.report(jobs, seconds), capsys.readouterr().out
    assert all(job.number(r"number_of_executed_units: (\d+)") > 0 for job in jobs)


@pytest.mark.parametrize("source", sorted(path.name for path in (ROOT / "benchmarks").glob("*.cpp")))
def test_benchmark_compiles(source):
    include = [f"-I{ROOT / folder}" for folder in ("csrc", "benchmarks", "tests/cpp")]
    run([os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-Wall", *include, ROOT / "benchmarks" / source])
