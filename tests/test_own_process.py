"""Processes that the package starts for itself, on every Python that it supports."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tcim_lite.own_process import limit_resource, module_command


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 11, 0)])  # before 3.11 Python has no -P
def test_a_module_runs_with_its_arguments_and_nothing_from_where_it_runs(tmp_path, monkeypatch, version):
    if version > sys.version_info:
        pytest.skip("this Python is older")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", version)
        command = module_command("tcim_lite")
    assert ("-P" in command) == (version >= (3, 11))
    for name in ("json", "numpy", "runpy", "tcim_lite"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken from where it runs')")
    done = subprocess.run([*command, "explain", "S-101"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "S-101" in done.stdout


def test_a_limit_is_never_raised(monkeypatch):
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    for before, expected in (
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 100),
        ((40, resource.RLIM_INFINITY), 40),
        ((60, 70), 60),
        ((200, 300), 100),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, before=before: before)
        limit_resource(resource.RLIMIT_AS, 100)
        assert asked.pop() == (expected, expected)
