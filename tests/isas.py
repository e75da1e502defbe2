"""The sets of CPU kernels that TCIM_LITE_ISA names, slowest first, and the flags of Linux for a CPU that has them."""

from __future__ import annotations

import os
from pathlib import Path

import warm_python

_AVX2 = {"avx2", "fma", "f16c"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
X86_64 = {
    "avx2": _AVX2,
    "avxvnni": _AVX2 | {"avx_vnni"},
    "avx512": _AVX512,
    "avx512vnni": _AVX512 | {"avx512_vnni"},
    "amx": _AVX512 | {"avx512_vnni", "amx_tile", "amx_int8"},
}
AARCH64 = {"neon": {"asimd"}, "neondotprod": {"asimddp"}}
FLAGS: dict[str, set[str]] = {"ref": set(), **X86_64, **AARCH64}


def cpu_has(isa: str) -> bool:
    """What /proc/cpuinfo says, so that a dispatcher which forgets an instruction set is noticed."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return FLAGS[isa] <= set(flags.split())


def printed_by_isa(program: str, *arguments: object) -> set[str]:
    """What a program in Python prints with each set of kernels that this CPU has, and with three threads."""
    printed = set()
    for isa, threads in [(isa, "1") for isa in FLAGS if cpu_has(isa)] + [("", "3")]:
        env = os.environ | {"TCIM_LITE_THREADS": threads} | ({"TCIM_LITE_ISA": isa} if isa else {})
        done = warm_python.run("-c", program, *arguments, env=env, timeout=120)
        assert done.returncode == 0, done.stderr
        printed.add(done.stdout)
    return printed
