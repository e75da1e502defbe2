"""Where the time of a run goes: its steps, and what stopped the threads that do them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tcim_lite.runtime as tcim


@dataclass(frozen=True)
class StepTime:
    """The steps of one kind in one run.

    Attributes:
        op: "Linear", "Attention" with what comes before it, and so on.
        form: Of weights, "3072 x 1024 w4a8h0_ssfp": outputs by inputs; else "".
        seconds: Of all of them, in a mean run.
    """

    op: str
    form: str
    seconds: float


@dataclass(frozen=True)
class Stops:
    """What kept threads that had work from running, as shares of the time of all processors; 0 where nobody counts it.

    Attributes:
        waiting: They waited while other threads had the processors.
        stolen: The host of a virtual machine had them.
    """

    waiting: float
    stolen: float


class StopWatch:
    """Counts `Stops` from its making on. Linux counts them; elsewhere they are 0."""

    def __init__(self) -> None:
        self._started, self._before = time.perf_counter(), _counters()

    def read(self, threads: int) -> Stops:
        """The shares since then; `threads` of the CPU pool."""
        elapsed = time.perf_counter() - self._started
        waited, stolen = (now - before for now, before in zip(_counters(), self._before, strict=True))
        # Threads outside of the pool wait too, so that the sum may be more than all of the pool's time.
        return Stops(min(waited / (elapsed * threads), 1.0), min(stolen / (elapsed * (os.cpu_count() or 1)), 1.0))


def step_times(module: tcim.Module, runs: int, run: Callable[[], None]) -> tuple[StepTime, ...]:
    """Mean times of a module's steps over `runs` calls of `run`, which are slower for it on CUDA."""
    core = module._core
    core.time_steps(True)
    try:
        for _ in range(runs):
            run()
        return tuple(StepTime(op, form, seconds / runs) for op, form, seconds in core.step_times())
    finally:
        core.time_steps(False)


def _counters() -> tuple[float, float]:
    """Seconds that this process's threads have waited for a processor, and that the host has taken, up to now."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            waited += int(path.read_text().split()[1])  # ns
        except (OSError, IndexError):
            continue  # the thread has ended
    try:
        stolen = int(Path("/proc/stat").read_text().split(maxsplit=9)[8])
        return waited * 1e-9, stolen / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return waited * 1e-9, 0.0
