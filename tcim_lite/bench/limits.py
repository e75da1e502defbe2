"""What this machine can do at most, measured (csrc/base/machine_limits.h)."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from tcim_lite import _core

# Flags of /proc/cpuinfo that decide what a kernel can use, widest last.
_ISA = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")
_ISA_ARM = ("asimd", "asimddp", "i8mm", "bf16", "sve")


@dataclass(frozen=True)
class MachineLimits:
    """The roofs at one moment. A limit that cannot be measured here is 0.

    Attributes:
        threads: Size of the CPU pool, which all limits but two are measured with.
        read: Bytes per second read from memory, over 1 GiB.
        read_one: The same with one thread.
        read_model: Over as many bytes as were asked for: higher than `read` when much of them stays in a cache.
        int8: int8 operations per second of dot products of vectors.
        int8_instruction: What does them in the kernels in force, "VPDPBUSD zmm"; "" where `int8` is 0.
        int8_tile: The same of tiles (AMX).
        fp32: fp32 operations per second.
        core_to_core_ns: Nanoseconds for a cache line from one core to another: which placement a virtual machine has.
    """

    threads: int
    read: float
    read_one: float
    read_model: float
    int8: float
    int8_instruction: str
    int8_tile: float
    fp32: float
    core_to_core_ns: float

    @property
    def best_read(self) -> float:
        """The roof for a model that reads the bytes of `read_model` once a step."""
        return max(self.read, self.read_model)


def measure_limits(model_bytes: int = 0) -> MachineLimits:
    """Measures for one to three seconds, on all threads of the pool.

    Args:
        model_bytes: What a decode step reads; 0 leaves `read_model` out.
    """
    return MachineLimits(**_core.machine_limits(model_bytes))


def machine_name() -> str:
    """The processor and the instruction sets that matter here, such as "AMD EPYC 9B14 (avx2 avx512f avx512_vnni)"."""
    model, flags = platform.machine(), set[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
    known = " ".join(flag for flag in (*_ISA, *_ISA_ARM) if flag in flags)
    return f"{model} ({known})" if known else model
