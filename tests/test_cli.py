"""The command as a whole; its sub-commands have tests of their own."""

from __future__ import annotations

import subprocess
import sys

import tcim_lite


def run(*arguments: object, **keywords) -> subprocess.CompletedProcess:
    command = [sys.executable, "-P", "-m", "tcim_lite", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **keywords)


def test_python_m_tcim_lite_is_the_command():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"tcim-lite {tcim_lite.__version__}\n")
    done = run("inspect", "/none.hmm")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
