"""`tcim-lite bench` explains a graph that is below its limit by its steps and its waits."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tcim_lite.bench import StepTime, Stops, Timing, explain
from tcim_lite.bench.profile import StopWatch
from tcim_lite.cli.bench import _profile

pytestmark = pytest.mark.slow  # whole programs

MEASURED = Timing("decode", 7, 1, 11, 10e-3, 9e-3, 11e-3, 100.0, "read", 0.5, 4e-3, Stops(0.01, 0.0), ())
STEPS = (StepTime("Linear", "4 x 4 w", 3e-3), StepTime("Attention", "", 2e-3), StepTime("Linear", "8 x 4 w", 3e-3))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"share": 0.7}, ""),
        ({"limited_by": ""}, ""),
        (
            {"stops": Stops(0.2, 0.1)},
            "threads were stopped for 30% of the time (20% by other threads, 10% by the host)",
        ),
        ({"stops": Stops(0.9, 0.4)}, "threads were stopped for 100% of the time (90% by"),
        ({"fastest": 6e-3}, "its fastest run reached 83%, so the machine was disturbed"),
        (
            {"steps": STEPS},
            "decode at 7 is at 50% of the read rate: the limit alone takes 5.00 of 10.00 ms. "
            "Beyond it, in ms: Linear (reading weights) 2.00, outside of the steps 2.00, Attention 1.00.",
        ),
        (
            {"steps": STEPS, "limited_by": "int8", "weights_s": 5e-3},
            "Beyond it, in ms: Attention 2.00, outside of the steps 2.00, Linear (arithmetic) 1.00.",
        ),
    ],
    ids=["enough", "no limit", "stopped", "always stopped", "disturbed", "read", "int8"],
)
def test_a_graph_below_its_limit_is_explained(changes, expected):
    text = explain(replace(MEASURED, **changes))
    assert text.endswith(expected) or expected in text
    assert bool(text) == bool(expected)


def test_no_step_has_more_than_the_whole_run_in_the_profile():
    """Steps are timed in further runs, which may have been slower than those that count."""
    slow = replace(MEASURED, steps=(StepTime("Attention", "", 30e-3), StepTime("Linear", "4 x 4 w", 10e-3)))
    lines = [line.split() for line in _profile([slow, replace(MEASURED, steps=STEPS)])]
    assert [line[-4:] for line in lines[1:2]] == [["30.000", "75%", "2.000", "20%"]]
    assert lines[-1] == ["outside", "of", "the", "steps", "-", "2.000", "20%"]


def test_threads_that_wait_for_a_processor_are_counted():
    if not Path("/proc/self/schedstat").is_file():
        pytest.skip("this system does not count waiting threads")
    script = "import time\nuntil = time.perf_counter() + 0.5\nwhile time.perf_counter() < until: pass"
    watch = StopWatch()
    cpu = min(os.sched_getaffinity(0))
    command = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\n{script}"]
    with subprocess.Popen(command):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {cpu})
        try:
            until = time.perf_counter() + 0.5
            while time.perf_counter() < until:
                pass
        finally:
            os.sched_setaffinity(0, before)
    stops = watch.read(1)
    assert 0 < stops.waiting <= 1
    assert 0 <= stops.stolen <= 1
