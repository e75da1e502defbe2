"""The C++ test programs, with the objects of the package and with sanitizers; then the fuzz targets for a while.

The folders are the package's and build/cpp-tests of the checkout; they are kept between runs. TCIM_LITE_FUZZ_SECONDS
says how long to fuzz, default 60; 0 skips.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import cpp_programs
import fuzzing
import package_build
import pytest

pytestmark = pytest.mark.build

ROOT = Path(__file__).parent.parent
PROGRAMS = re.findall(r"^\s*tcim_lite_add_test\((\w+) ", (ROOT / "tests/cpp/CMakeLists.txt").read_text(), re.MULTILINE)
ENVIRONMENT = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}
# With sanitizers only: every model that a test in Python loads runs this code in the package, but for decode_*, whose
# sources are not in the package. What remains loops over data or has threads.
LOGIC = {
    "decode_handovers_test", "decode_program_test", "graph_test", "hmm_reader_test", "layouts_test", "parts_test",
    "plan_limits_test", "plan_test", "shape_rules_test", "toml_test",
}  # fmt: skip
SHIPPED = [name for name in PROGRAMS if name not in LOGIC]
# Not what links the runtime, which takes sanitizers longer than any other library: all that they would see of it is the
# ledger of a device, and threads, which are another sanitizer's (test_races.py).
SANITIZED = [name for name in PROGRAMS if name not in {"device_test", "races_test"}]
CASES = [*(("shipped", name) for name in SHIPPED), *(("sanitized", name) for name in SANITIZED)]
# Arguments of programs with sanitizers: which addresses exp uses does not depend on the values.
SHORTER = {"kernels_exp_test": ["4001"]}


@pytest.fixture(scope="module")
def shipped() -> Path:
    """Adds the programs to the build of the package: what is tested are the objects that users get."""
    folder = package_build.package_build()
    package_build.run("cmake", "-S", ROOT, "-B", folder, "-DTCIM_LITE_TESTS=BY_NAME")
    package_build.run("cmake", "--build", folder, *(part for name in SHIPPED for part in ("--target", name)))
    assert package_build.package_build() == folder, "the next test that needs the package would compile it again"
    return folder / "bin"


@pytest.fixture(scope="module")
def sanitized(shipped) -> Path:
    objects = shipped.parent / "tests/cpp/CMakeFiles"
    return cpp_programs.sanitized(*SANITIZED, objects=objects) / "bin"


def run(command: list[str | Path], timeout: float = 1200) -> str:
    """Runs a command; what it printed is the message of a failure."""
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, env=ENVIRONMENT
    )
    assert result.returncode == 0, f"{command[0]} exits {result.returncode}:\n{result.stdout[-8000:]}"
    return result.stdout


@pytest.mark.parametrize(("build", "program"), CASES)
def test_program(request, build, program):
    arguments = SHORTER.get(program, []) if build == "sanitized" else []
    run([request.getfixturevalue(build) / program, *arguments], timeout=600)


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
