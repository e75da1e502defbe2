"""Runs the conformance suite with a fault: `python tests/faults/run.py [--tier TIER] [--skip WORD]... [NAME]...`.

Prints every case that the fault fails. Without names, all faults, one after another.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from catalogue import FAULTS
from seeded_build import seeded_package

from tcim_lite.conformance import registry

CAUGHT = {"failed", "crashed", "hung", "flaky"}  # each makes the suite's exit status 1


def outcomes(fault: str, cases: list[str], jobs: int = 1) -> dict[str, str]:
    """What became of the cases with the fault, or with none if that is ""."""
    environment = {**os.environ, "PYTHONPATH": str(seeded_package()), "TCIM_LITE_FAULT": fault}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tcim_lite.conformance", "--report", folder, "--jobs", str(jobs)]
        command += [f"--only={case}" for case in cases]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=3000, check=False
        )
        report = Path(folder, "report.json")
        assert done.returncode in (0, 1), done.stdout + done.stderr
        found = json.loads(report.read_text(encoding="utf-8"))
    assert found["environment"]["file"].startswith(environment["PYTHONPATH"]), "not the seeded package"
    return {result["id"]: result["outcome"] for result in found["results"]}


def main() -> int:
    """Runs the command line; 1 if a fault was not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tier", default="quick", choices=registry.TIERS)
    parser.add_argument("--skip", default=[], action="append", help="leave out cases with this word")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(FAULTS)}")
    arguments = parser.parse_args()
    cases = [case.id for case in registry.selected(registry.all_cases(), arguments.tier)]
    cases = [case for case in cases if not any(word in case for word in arguments.skip)]
    missed = []
    for name in arguments.names or FAULTS:
        found = outcomes(name, cases, arguments.jobs)
        caught = [case for case, outcome in found.items() if outcome in CAUGHT]
        flaky = [case for case, outcome in found.items() if outcome == "flaky"]
        print(f"{name}: {len(caught)} of {len(found)} cases fail, {len(flaky)} are flaky", flush=True)
        for case in caught:
            print(f"  {case}", flush=True)
        missed += [] if caught else [name]
    print(f"not caught: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
