"""Runs the kernels for AVX-512 on a CPU without it, by tests/cpp/emulated/avx512.h, against the reference kernels.

Left out are kernels with AVX-512 instructions of their own (Linear of quantised weights, AVX512-VNNI, AMX). Takes two
minutes of CPU time, so only TCIM_LITE_EMULATED=1 asks for it. The build folder is build/emulated-avx512 of the checkout
and is kept between runs.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import cpp_programs
import isas
import pytest

pytestmark = pytest.mark.build

ROOT = Path(__file__).parent.parent
PROGRAMS = cpp_programs.EMULATED_KERNELS


@pytest.fixture(scope="module")
def programs() -> Path:
    if os.environ.get("TCIM_LITE_EMULATED") != "1":
        pytest.skip("TCIM_LITE_EMULATED is not 1")
    if platform.machine() != "x86_64" or not isas.cpu_has("avx2"):
        pytest.skip("this machine has no AVX2")
    options = ["-DTCIM_LITE_EMULATE_AVX512=ON", "-DTCIM_LITE_WITHOUT_ISAS=avxvnni;avx2"]
    options += ["-DTCIM_LITE_PYTHON=OFF", "-DTCIM_LITE_TESTS=ON", "-DTCIM_LITE_UNITY=ON"]
    return cpp_programs.build(ROOT, ROOT / "build/emulated-avx512", *options, targets=tuple(PROGRAMS)) / "bin"


@pytest.mark.parametrize("program", PROGRAMS)
def test_kernels_equal_ref(programs, program):
    found = cpp_programs.run(programs / program, *PROGRAMS[program])
    if program == "kernels_ops_test":
        assert "instruction sets: ref, avx512\n" in found
