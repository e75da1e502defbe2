"""Runs of one module, timed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tcim_lite.runtime as tcim

from .profile import StepTime, Stops, StopWatch, step_times


@dataclass(frozen=True)
class Measured:
    """What `timed_runs` found.

    Attributes:
        times: Seconds of each run.
        stops: What stopped the threads during these runs.
        steps: Of further runs.
    """

    times: list[float]
    stops: Stops
    steps: tuple[StepTime, ...]


def timed_runs(
    module: tcim.Module, run: Callable[[], None], profiled: Callable[[], None], threads: int, quick: bool
) -> Measured:
    """Calls `run` once untimed, then until there are enough runs and seconds; then `profiled` for the steps.

    Args:
        module: What both run.
        run: One run as programs make it: inputs set, run, output read.
        profiled: The same, always of equal work.
        threads: Size of the CPU pool.
        quick: Fewer runs.
    """
    least_runs, least_s = (5, 0.2) if quick else (11, 2.0)
    times: list[float] = []
    run()
    watch = StopWatch()
    while len(times) < least_runs or sum(times) < least_s:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return Measured(times, watch.read(threads), step_times(module, least_runs, profiled))


def resident_bytes() -> int:
    """Memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
