"""Builds the C++ test programs, as they ship and with sanitizers, and runs each; then the fuzz targets for a while.

The build folder is build/cpp-tests of the checkout and is kept between runs. TCIM_LITE_FUZZ_SECONDS says how long to
fuzz, default 60; 0 skips.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fuzzing
import pytest

pytestmark = pytest.mark.build

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build/cpp-tests"
PROGRAMS = re.findall(r"^\s*tcim_lite_add_test\((\w+) ", (ROOT / "tests/cpp/CMakeLists.txt").read_text(), re.MULTILINE)
SANITIZED = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g", "-DTCIM_LITE_SANITIZE=address,undefined"]
VARIANTS = {"release": ["-DCMAKE_BUILD_TYPE=Release"], "sanitized": SANITIZED}
# cmake and ninja come with the test environment; the machine itself may have none.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
ENVIRONMENT = {**os.environ, "PATH": PATH, "UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}


def build(name: str, options: list[str], *targets: str) -> Path:
    """Configures and builds; returns the folder of the programs."""
    folder = BUILD / name
    if not (folder / "CMakeCache.txt").exists() and shutil.which("ninja", path=PATH):
        options = ["-G", "Ninja", *options]
    run(["cmake", "-S", ROOT, "-B", folder, "-DTCIM_LITE_PYTHON=OFF", *options])
    jobs = str(len(os.sched_getaffinity(0)))
    run(["cmake", "--build", folder, "--parallel", jobs, *(part for name in targets for part in ("--target", name))])
    return folder / "bin"


def run(command: list[str | Path], timeout: float = 1200) -> str:
    """Runs a command; what it printed is the message of a failure."""
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, env=ENVIRONMENT
    )
    assert result.returncode == 0, f"{command[0]} exits {result.returncode}:\n{result.stdout[-8000:]}"
    return result.stdout


@pytest.fixture(scope="module", params=VARIANTS)
def programs(request: pytest.FixtureRequest) -> Path:
    return build(request.param, ["-DTCIM_LITE_TESTS=ON", *VARIANTS[request.param]], *PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(programs, program):
    run([programs / program], timeout=600)


@pytest.mark.slow
def test_fuzz(tmp_path, capsys):
    seconds = int(os.environ.get("TCIM_LITE_FUZZ_SECONDS", "60"))
    if seconds == 0:
        pytest.skip("TCIM_LITE_FUZZ_SECONDS is 0")
    if not fuzzing.can_build():
        pytest.skip("clang++ with libFuzzer is missing")
    programs = fuzzing.build(BUILD / "fuzz")
    limit = f"-max_total_time={max(1, seconds // len(fuzzing.TARGETS))}"
    jobs = fuzzing.fuzz(programs, tmp_path, [limit], share=0, jobs=1, seed=1)
    assert fuzzing.report(jobs, seconds), capsys.readouterr().out
    assert all(job.number(r"number_of_executed_units: (\d+)") > 0 for job in jobs)
