"""Threads under ThreadSanitizer: all of the core, with the reference kernels, whose loads and stores it sees as well.

tests/cpp/races_test.cpp says what the threads do. The build folder, build/cpp-tests/threads, is kept between runs.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import cpp_programs
import fuzzing
import isas
import pytest

pytestmark = [pytest.mark.build, pytest.mark.slow]

PROGRAMS = ("races_test", "thread_pool_test")
CONFIGURE = [
    *fuzzing.SANITIZED,
    "-DTCIM_LITE_SANITIZE=thread",
    f"-DTCIM_LITE_WITHOUT_ISAS={';'.join(isa for isa in isas.FLAGS if isa != 'ref')}",
]
# The children of forks run no threads, which the sanitizer would not follow; the process ends while threads run.
ENVIRONMENT = {"TSAN_OPTIONS": "die_after_fork=0 report_thread_leaks=0 halt_on_error=1 second_deadlock_stack=1"}


@pytest.fixture(scope="module")
def launcher(tmp_path_factory) -> list[str]:
    """What starts a program with ThreadSanitizer: nothing, or setarch where the kernel spreads addresses too far."""
    program = tmp_path_factory.mktemp("probe") / "probe"
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler {compiler}")
    text = "#include <thread>\nint main() { std::thread([] {}).join(); }"
    command = [compiler, "-fsanitize=thread", "-pthread", "-x", "c++", "-", "-o", program]
    built = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        pytest.skip(f"{compiler} has no ThreadSanitizer: {built.stderr.strip()[-300:]}")
    failures = []
    for prefix in ([], ["setarch", platform.machine(), "-R"]):
        if prefix and shutil.which(prefix[0]) is None:
            continue
        ran = subprocess.run([*prefix, program], capture_output=True, text=True, check=False)
        if ran.returncode == 0:
            return prefix
        failures.append((ran.stdout + ran.stderr).strip()[-300:])
    pytest.skip(f"no program with ThreadSanitizer starts here: {'; '.join(failures)}")


@pytest.fixture(scope="module")
def programs(launcher) -> Path:
    folder = cpp_programs.ROOT / "build/cpp-tests/threads"
    return cpp_programs.build(cpp_programs.ROOT, folder, *CONFIGURE, targets=PROGRAMS) / "bin"


@pytest.mark.parametrize("command", [("races_test",), ("races_test", "forks"), ("thread_pool_test",)], ids=" ".join)
def test_no_race_is_reported(launcher, programs, command):
    cpp_programs.run(*launcher, programs / command[0], *command[1:], env=ENVIRONMENT)
