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

sys.path.insert(0, str(Path(__file__).parents[1]))

import warm_python
from catalogue import FAULTS
from seeded_build import seeded_package

from tcim_lite.conformance import models, registry

# What a child of the suite's runner does.
WORKER = """
import os, sys
package, job, events = sys.argv[1:]
sys.path.insert(0, package)
from tcim_lite import runtime
from tcim_lite.conformance import worker
assert runtime.__file__.startswith(package), "not the seeded package"
sys.exit(worker.main([job, str(os.open(events, os.O_WRONLY))]))
"""
CAUGHT = {"failed", "crashed", "hung", "flaky"}  # each makes the suite's exit status 1


def outcomes(fault: str, cases: list[str], jobs: int = 1) -> dict[str, str]:
    """What became of the cases with the fault, or with none if that is ""."""
    environment = {**os.environ, "PYTHONPATH": str(seeded_package()), "TCIM_LITE_SEEDED_FAULT": fault}
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


def verdicts(fault: str, cases: list[str], shared: Path) -> dict[str, str]:
    """The same in a tenth of the time: no program is started, and a case that fails is not run again.

    `shared` keeps what cases build in C++.
    """
    found: dict[str, str] = {}
    while left := [case for case in cases if case not in found]:
        ended, end = _worker(fault, left, shared)
        found |= ended
        if len(ended) < len(left):
            found[left[len(ended)]] = end
        elif end != "exited 0" and found[left[-1]] == "passed":
            found[left[-1]] = end
    return found


def _worker(fault: str, cases: list[str], shared: Path) -> tuple[dict[str, str], str]:
    """What became of the first cases, and how the process ended."""
    package = seeded_package()
    environment = {**os.environ, "PYTHONPATH": str(package), "TCIM_LITE_SEEDED_FAULT": fault}
    limit = sum(case.seconds for case in registry.all_cases() if case.id in cases)
    with tempfile.TemporaryDirectory() as folder:
        job, events = Path(folder, "job.json"), Path(folder, "events")
        job.write_text(json.dumps({"cases": cases, "models": str(models.SHIPPED), "sdk": None, "shared": str(shared)}))
        events.touch()
        printed = ""
        try:
            words = ("-c", WORKER, package, job, events)
            done = warm_python.run(*words, env=environment, cwd=folder, timeout=limit)
            end, printed = "exited 0" if done.returncode == 0 else "crashed", done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            end = "hung"
        said = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    assert any("begin" in event for event in said), printed
    return {event["end"]: event["outcome"] for event in said if "end" in event}, end


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
