"""Builds the C++ test programs for aarch64 and runs them under qemu, on CPUs with and without the newer instructions.

Needs Debian's g++-aarch64-linux-gnu and qemu-user-static; skips where one is missing. The build folder is
build/aarch64-tests of the checkout and is kept between runs.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import cpp_programs
import pytest

pytestmark = pytest.mark.build

ROOT = Path(__file__).parent.parent
KERNELS = cpp_programs.EMULATED_KERNELS
CORE = ["convert_test", "hmm_reader_test", "plan_limits_test", "plan_test", "thread_pool_test"]
# By qemu's name: the kernel sets that must be found there.
CPUS = {
    "cortex-a72": "ref, neon",
    "neoverse-n1": "ref, neon, neondotprod",
    "max": "ref, neon, neondotprod",
}
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


@pytest.fixture(scope="module")
def programs() -> Path:
    if platform.machine() == "aarch64":
        pytest.skip("this machine is aarch64: tests/test_cpp.py runs these programs")
    if shutil.which("aarch64-linux-gnu-g++") is None or QEMU is None:
        pytest.skip("no aarch64-linux-gnu-g++ or qemu-aarch64: apt install g++-aarch64-linux-gnu qemu-user-static")
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'tests/cpp/aarch64.cmake'}"
    options = [toolchain, "-DTCIM_LITE_PYTHON=OFF", "-DTCIM_LITE_TESTS=ON", "-DTCIM_LITE_UNITY=ON"]
    return cpp_programs.build(ROOT, ROOT / "build/aarch64-tests", *options, targets=(*KERNELS, *CORE)) / "bin"


def run(cpu: str, program: Path, *arguments: str) -> str:
    """Runs a program; what it printed is the message of a failure."""
    environment = {name: value for name, value in os.environ.items() if name != "TCIM_LITE_ISA"}
    command = [str(QEMU), "-cpu", cpu, str(program), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=environment)
    assert result.returncode == 0, f"{program.name} on {cpu} exits {result.returncode}:\n{result.stderr[-8000:]}"
    return result.stdout


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("program", KERNELS)
def test_kernels_equal_ref(programs, cpu, program):
    found = run(cpu, programs / program, *KERNELS[program])
    if program == "kernels_ops_test":
        assert f"instruction sets: {CPUS[cpu]}\n" in found


@pytest.mark.parametrize("program", CORE)
def test_core(programs, program):
    run("cortex-a72", programs / program)
