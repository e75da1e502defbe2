"""The conformance suite's quick, full and llm tiers, each case a test, and what holds the suite together."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from warm_python import ISOLATED

from tcim_lite.conformance import corners, expectations, registry

TIERS = ("full", "llm")  # quick is part of full
CASES = [case for tier in TIERS for case in registry.selected(registry.all_cases(), tier)]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, dict]:
    """What became of every case of the tiers."""
    found = {}
    for tier in TIERS:
        folder = tmp_path_factory.mktemp(tier)
        command = [sys.executable, ISOLATED, "-m", "tcim_lite.conformance", "--tier", tier, "--report", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=folder, check=False)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        results = json.loads((folder / "report.json").read_text())["results"]
        found |= {result["id"]: result for result in results}
    return found


@pytest.mark.build  # the C++ cases
@pytest.mark.slow
@pytest.mark.parametrize("id_", [case.id for case in CASES])
def test_case(results, id_):
    result = results[id_]
    if result["outcome"] == "not run":
        pytest.skip(result["detail"])
    assert result["outcome"] == "passed", result["detail"]


def run_cases(folder: Path, environment: dict[str, str], *cases: str) -> None:
    words = [word for case in cases for word in ("--only", case)]
    command = [sys.executable, ISOLATED, "-m", "tcim_lite.conformance", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=folder, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_cases_that_bind_at_random_or_by_corner_hold_of_runtime_1_3(tmp_path):
    run_cases(tmp_path, {"TCIM_LITE_EMULATE": "1.3"}, "sequences::test_some_sequences", "corner_binding::")


@pytest.mark.slow
@pytest.mark.parametrize("devices", [{"TCIM_LITE_DEVICE_NUM": "3"}, {"HOUMO_VISIBLE_DEVICES": "0"}])
def test_cases_about_devices_hold_whatever_devices_the_environment_declares(tmp_path, devices):
    run_cases(tmp_path, devices, "corner_shim::", "corner_dev_ctrl::", "corner_binding::")


def test_every_corner_has_a_case_in_the_quick_tier():
    covered = {case.corner for case in registry.selected(CASES, "quick")} - {None}
    assert covered == set(corners.NAMES), f"without a case: {sorted(set(corners.NAMES) - covered)}"


@pytest.mark.parametrize("version", [(1, 3), (1, 4)])
def test_every_case_about_a_version_must_pass(version):
    ids = [case.id for case in CASES]
    assert sorted(expectations.must_pass(version, ids)) == sorted(case.id for case in CASES if case.is_about(version))


def test_the_list_says_how_many_cases_each_test_has():
    tests = Counter(case.id.partition("[")[0] for case in CASES if case.is_about((1, 4)))
    several = {case.id.partition("[")[0] for case in CASES if "[" in case.id}
    lines = (expectations.FOLDER / "v1.4.txt").read_text().splitlines()[1:]
    assert sorted(lines) == sorted(f"{test}[*] {count}" if test in several else test for test, count in tests.items())


def test_the_newest_list_is_that_of_the_version_emulated_by_default():
    assert expectations.must_pass((99, 0), []) == expectations.must_pass((1, 4), [])


def test_the_suite_imports_itself_numpy_and_the_standard_library_only():
    """But for one file, whose case says `not run` without hypothesis."""
    sources = list(Path(registry.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    allowed = sys.stdlib_module_names | {"numpy", "__future__"}

    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module else []
            extra = {"hypothesis"} if path.name.startswith("api_machine") else set()
            foreign = [name for name in names if name.partition(".")[0] not in allowed | extra]
            assert not foreign, f"{path.name} imports {foreign}"
