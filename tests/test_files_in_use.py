"""A file that somebody changes while it is loaded: noticed by strict mode, survived by copies, named by SIGBUS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import layers
from tcim_lite.errors import StrictError, TcimError

ROWS = np.arange(32, dtype=np.float32).reshape(4, 8)


def overwrite(path: Path, data: bytes) -> None:
    """What `cp new old` and `rsync --inplace` do: the file stays, its content goes."""
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(data)


def answer(module: rt.Module) -> np.ndarray:
    module.set_input("x", ROWS)
    module.run(True)
    return module.get_output("y").numpy()


@pytest.fixture
def strict():
    layers.enable("strict", mode="error")
    yield
    layers.disable("strict")
    layers.take_findings()


def run_program(folder: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = "import os, signal\nimport numpy as np\nimport tcim_lite.runtime as rt\n" + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_weights_read_into_memory_do_not_change_with_their_file(linear_pair, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_WEIGHTS", "copy")
    module = rt.load(str(linear_pair[0]))
    before = answer(module)
    weights = linear_pair[0].with_name("linear.hmw")
    overwrite(weights, bytes(weights.stat().st_size))
    np.testing.assert_array_equal(answer(module), before)
    overwrite(weights, b"")
    np.testing.assert_array_equal(answer(module), before)


def test_another_way_to_hold_weights_is_refused(linear_pair, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_WEIGHTS", "swap")
    with pytest.raises(TcimError, match="TCIM_LITE_WEIGHTS='swap': expected copy or map"):
        rt.load(str(linear_pair[0]))


@pytest.mark.usefixtures("strict")
class TestStrictMode:
    def test_names_a_weights_file_that_was_rewritten_in_place(self, linear_pair):
        module = rt.load(str(linear_pair[0]))
        answer(module)
        weights = linear_pair[0].with_name("linear.hmw")
        overwrite(weights, bytes(weights.stat().st_size))
        os.utime(weights, (1, 1))
        with pytest.raises(StrictError, match=r"S-601.*linear\.hmw' was written to after it was loaded"):
            answer(module)

    def test_stops_a_run_before_it_reads_what_became_shorter(self, linear_pair):
        module = rt.load(str(linear_pair[0]))
        weights = linear_pair[0].with_name("linear.hmw")
        size = weights.stat().st_size
        os.truncate(weights, 100)
        with pytest.raises(StrictError, match=rf"S-601.*linear\.hmw' had {size} bytes when it .* has 100 now"):
            answer(module)

    def test_takes_a_file_that_was_replaced_by_rename(self, linear_pair):
        module = rt.load(str(linear_pair[0]))
        before = answer(module)
        weights = linear_pair[0].with_name("linear.hmw")
        other = weights.with_name("new")
        other.write_bytes(b"another file")
        other.rename(weights)
        np.testing.assert_array_equal(answer(module), before)

    def test_does_not_judge_a_module_by_the_files_of_another(self, linear_pair, add_model):
        other = rt.load(str(linear_pair[0]))
        answer(other)
        os.truncate(linear_pair[0].with_name("linear.hmw"), 100)
        add = rt.load(str(add_model))
        for name in "ab":
            add.set_input(name, np.ones((2, 3), np.float32))
        add.run(True)


SHORTENED = """
    module = rt.load(MODEL)
    os.truncate("linear.hmw", 100)
    module.set_input("x", np.ones((4, 8), np.float32))
    module.run(True)
    print("not reached")
"""


def test_a_bus_error_names_the_file(linear_pair):
    ran = run_program(linear_pair[0].parent, SHORTENED.replace("MODEL", repr(linear_pair[0].name)))
    assert ran.returncode == -signal.SIGBUS
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith("tcim_lite: SIGBUS: ")
    assert "linear.hmw became shorter" in line
    assert "rename" in line
    assert "TCIM_LITE_WEIGHTS=copy" in line


def test_a_handler_of_the_program_has_its_turn_after_the_line(linear_pair):
    body = SHORTENED.replace("MODEL", repr(linear_pair[0].name))
    ran = run_program(linear_pair[0].parent, body, PYTHONFAULTHANDLER="1")
    assert ran.returncode == -signal.SIGBUS
    assert ran.stderr.startswith("tcim_lite: SIGBUS: ")
    assert "Fatal Python error: Bus error" in ran.stderr


def test_a_bus_signal_that_somebody_sends_ends_the_process_without_a_word(linear_pair):
    body = f"module = rt.load({linear_pair[0].name!r})\nos.kill(os.getpid(), signal.SIGBUS)\nprint('not reached')"
    ran = run_program(linear_pair[0].parent, body)
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGBUS, "", "")
