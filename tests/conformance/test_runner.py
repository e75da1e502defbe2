"""The runner itself, driven through its command line against a runtime that goes wrong in every way."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tcim_lite.conformance import registry, runner

sys.path.insert(0, str(Path(__file__).parent))
import vendor_like
from runner_cases import AFTER, BEFORE, CASE, SUITE, VERSION, outcomes

pytestmark = pytest.mark.slow


def test_a_copied_folder_judges_another_runtime(suite):
    status, report, output = suite("--only", CASE, "--only", VERSION)
    assert (status, outcomes(report)) == (0, {VERSION: "passed", CASE: "passed"}), output
    assert report["environment"]["version"] == "v1.4.2\nfake"
    assert report["runtime"] == "fake_runtime"
    assert report["verdict"] == "conforms"


def test_a_copied_folder_asks_another_runtime_for_documented_names_only(suite, tmp_path):
    """No class of errors, no variables of the emulator, no SDK beside it: what is left is passed or not run."""
    status, report, output = suite("--tier", "quick", "--runtime", vendor_like.write(tmp_path), limit=600)
    assert status == 0, output
    assert report["counts"].keys() == {"passed", "not run"}
    assert report["counts"]["passed"] > 90
    reasons = {result["detail"] for result in report["results"] if result["outcome"] == "not run"}
    assert not [reason for reason in reasons if "vendor_like" in reason]  # its dev_ctrl was found too


@pytest.mark.parametrize(
    ("fake", "outcome", "words"),
    [
        ("fail", "failed", "nothing was refused"),
        ("crash", "crashed", "ended by SIGSEGV"),
        ("exit", "crashed", "exits 0"),
        ("hang", "hung", "no end after"),
        ("flaky", "flaky", "failed first, passed when run again"),
    ],
)
def test_a_case_that_goes_wrong_is_marked_and_the_group_goes_on(suite, fake, outcome, words):
    patience = 0.05 if fake == "hang" else 1  # a loaded machine may take seconds to start a case
    chosen = (f"--only={id_}" for id_ in (BEFORE, CASE, AFTER))
    status, report, output = suite(*chosen, f"--patience={patience}", fake=fake)
    found = outcomes(report)
    assert status == 1
    assert found[CASE] == outcome, output
    assert words in next(result["detail"] for result in report["results"] if result["id"] == CASE)
    assert f"{outcome.upper()} " in output
    assert CASE in output
    assert list(found) == [BEFORE, CASE, AFTER]
    assert found[BEFORE] == "failed"  # the fake has no DevManager
    assert found[AFTER] == "not run"  # the emulator's choices are no other runtime's
    assert report["verdict"] == "does not conform"


def test_what_a_child_says_last_is_heard_however_slow_the_runner_is(monkeypatch):
    class SlowSelector(selectors.DefaultSelector):
        def select(self, timeout=None):
            ready = super().select(timeout)
            if not ready:
                time.sleep(2)  # the child, silent while it starts, says all it has to say and ends
            return ready

    monkeypatch.setattr(runner.selectors, "DefaultSelector", SlowSelector)
    (case,) = registry.selected(registry.all_cases(), "quick", [VERSION])
    settings = runner.Settings("tcim_lite.runtime", SUITE / "models")
    (result,) = runner.Runner(settings, lambda result: None).run([case], {})
    assert result.outcome == "passed", result.detail


def test_what_a_crashed_case_printed_is_in_its_detail(suite):
    _, report, _ = suite("--only", CASE, fake="crash")
    (result,) = report["results"]
    assert "about to crash" in result["detail"]
    assert "refusals.py" in result["detail"]  # where it crashed, from faulthandler


def test_a_crashed_case_leaves_no_files(suite, tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    _, report, output = suite("--only", CASE, fake="crash")
    assert outcomes(report)[CASE] == "crashed", output
    assert list(folder.iterdir()) == []


def test_nothing_executed_is_a_failure(suite):
    assert suite("--only", "no such case")[0] == 3
    status, report, output = suite("--only", "C-23 ids are consecutive")  # the emulator's shim
    assert status == 3
    assert set(outcomes(report).values()) == {"not run"}
    assert "nothing was executed" in output


def test_a_runtime_that_cannot_be_used_is_a_usage_error(suite):
    for fake, words in (("unusable", "SIGABRT"), ("unversioned", "expected vX.Y.Z")):
        status, report, output = suite("--only", CASE, fake=fake)
        assert (status, report) == (2, None), output
        assert words in output
    for name, words in (("no_such_module", "No module named 'no_such_module'"), ("os", "os has no get_version")):
        status, report, output = suite("--only", CASE, "--runtime", name)
        assert (status, report) == (2, None)
        assert f"{words}; --runtime takes a module" in output
        assert "Traceback" not in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "/nowhere"], "models.json"),
        (["--sdk", "/nowhere"], "include/"),
        (["--jobs", "0"], "--jobs 0: expected a number above 0"),
        (["--patience", "nan"], "--patience nan: expected a number above 0"),
        (["--seconds", "-1"], "--seconds -1.0: expected a number above 0"),
        (["--waivers", "/nowhere"], "/nowhere"),
        (["--report", "/dev/null/report"], "/dev/null"),
    ],
)
def test_wrong_arguments_are_named(suite, arguments, words):
    status, report, output = suite(*arguments)
    assert (status, report) == (2, None)
    assert words in output


def test_models_of_another_compiler_are_named_by_role(suite, tmp_path):
    folder = tmp_path / "compiled"
    folder.mkdir()
    (folder / "models.json").write_text('{"add": "mine.hmm"}')
    assert "mine.hmm not found" in suite("--only", "C-03", "--models", folder)[2]
    (folder / "mine.hmm").write_bytes((SUITE / "models/add.hmm").read_bytes())
    words = ("--only=corner_host_data::test_c03", "--only=C-28 loads")  # C-03 alone has a case in C++ too
    status, report, output = suite(*words, "--models", folder, "--runtime", "tcim_lite.runtime")
    assert status == 0, output
    found = outcomes(report)
    assert found["corner_host_data::test_c03_host_data_is_copied_at_call_time"] == "passed"
    assert found["corner_several_devices::test_c28_loads_from_memory"] == "not run"
    assert "no model for the role 'add_slow'" in output
    (folder / "models.json").write_text('{"adder": "mine.hmm"}')
    assert "unknown roles adder" in suite("--models", folder)[2]


def test_reports_say_the_same(suite, tmp_path):
    status, report, _ = suite("--only", CASE, "--only", VERSION, "--only", "C-23 ids are", "--strict", fake="crash")
    assert status == 1
    assert report["strict"] is True
    assert report["counts"] == {"passed": 1, "crashed": 1, "not run": 1}
    xml = ElementTree.parse(tmp_path / "report/junit.xml").getroot().find("testsuite")
    assert {name: xml.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "0",
        "errors": "1",
        "skipped": "1",
    }
    (error,) = xml.iter("error")
    assert "SIGSEGV" in error.get("message")
    page = (tmp_path / "report/index.html").read_text()
    for words in ("fake_runtime", "v1.4.2", "does not conform", "SIGSEGV", "C-19", "C-32", "run options refuse", CASE):
        assert words in page, words
    assert not re.search(r"(?:src|href)=[\"'](?!#)|@import|url\(", page)  # one page, nothing fetched
    assert "prefers-color-scheme: dark" in page


def test_strict_mode_reaches_the_children(suite):
    assert suite("--only", CASE)[1]["environment"]["variables"].get("TCIM_LITE_STRICT") is None
    assert suite("--only", CASE, "--strict")[1]["environment"]["variables"]["TCIM_LITE_STRICT"] == "error"


def names(environ, folder):
    """Whether the process has the folder in its environment."""
    try:
        return str(folder).encode() in environ.read_bytes()
    except OSError:
        return False  # another user's, or gone


def test_an_interrupted_run_leaves_no_process(tmp_path):
    shutil.copy(Path(__file__).with_name("fake_runtime.py"), tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "FAKE": "hang"}
    command = [sys.executable, SUITE, "--runtime", "fake_runtime", "--only", CASE]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    assert process.stdout.readline().startswith("fake_runtime")
    process.stdout.readline()
    process.send_signal(2)
    process.stdout.close()
    assert process.wait(60) == 130
    left = [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if names(path, tmp_path)]
    assert not left


def test_without_hypothesis_random_sequences_are_not_run(suite, tmp_path):
    (tmp_path / "hypothesis.py").write_text("raise ImportError('it is not installed')")
    status, report, output = suite("--only", "sequences::", "--runtime", "tcim_lite.runtime")
    assert status == 3
    assert set(outcomes(report).values()) == {"not run"}
    assert "pip install hypothesis" in output


def test_a_random_case_that_fails_names_its_seed(suite):
    status, report, output = suite("--only", "sequences::test_random", "--seconds", "1", "--seed", "4711")
    assert status == 1, output
    assert "--seed 4711" in report["results"][0]["detail"]
