"""A copy of the suite that judges a fake runtime."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import warm_python

sys.path.insert(0, str(Path(__file__).parent))
from runner_cases import SUITE


@pytest.fixture
def suite(tmp_path):
    """Runs a copy of the suite's folder under another name, against the fake; returns (status, report, output)."""
    copy = tmp_path / "judge"
    # With what is compiled, which every process would compile again; but not while it is being written.
    shutil.copytree(SUITE, copy, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copy(Path(__file__).with_name("fake_runtime.py"), tmp_path)

    def run(*arguments, fake="good", folder=copy, limit=120):
        # `python FOLDER` runs this file too.
        command = [folder / "__main__.py", "--runtime", "fake_runtime", "--report", tmp_path / "report", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "FAKE": fake, "FAKE_FOLDER": str(tmp_path)}
        done = warm_python.run(*command, timeout=limit, env=environment, cwd=tmp_path)
        report = tmp_path / "report/report.json"
        return done.returncode, json.loads(report.read_text()) if report.exists() else None, done.stdout + done.stderr

    return run
