"""The runner itself, driven through its command line against a runtime that goes wrong in every way."""

from __future__ import annotations

import json
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
import warm_python

import tcim_lite.conformance
from tcim_lite.conformance import expectations, registry, runner

sys.path.insert(0, str(Path(__file__).parent))

import vendor_like

pytestmark = pytest.mark.slow

SUITE = Path(tcim_lite.conformance.__file__).parent
# The case that shows how the fake behaves, one before it in its group, one after it.
CASE = "refusals::test_run_options_refuse_rounds_below_one"
BEFORE, AFTER = (
    "refusals::test_managers_refuse_device_ids_that_are_none",
    "refusals::test_options_refuse_what_is_no_device",
)
VERSION = "corner_identity::test_c19_the_first_line_of_the_version_has_a_number"


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


def outcomes(report):
    return {result["id"]: result["outcome"] for result in report["results"]}


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


def test_a_waived_case_may_fail_and_its_pass_is_reported(suite, tmp_path):
    waivers = tmp_path / "waivers.txt"
    waivers.write_text(f"# known\n{CASE}: our fake is like that\n")
    status, report, _ = suite("--only", CASE, "--only", VERSION, "--waivers", waivers, fake="fail")
    assert (status, outcomes(report)[CASE]) == (0, "waived")
    assert "our fake is like that" in json.dumps(report)
    status, report, output = suite("--only", CASE, "--waivers", waivers)
    assert (status, outcomes(report)[CASE]) == (0, "unexpected pass")
    assert "UNEXPECTED PASS" in output
    waivers.write_text(f"{CASE[:-5]}*: the beginning is enough\n")
    assert outcomes(suite("--only", CASE, "--waivers", waivers, fake="crash")[1])[CASE] == "waived"


def test_a_waiver_that_names_findings_is_for_cases_that_fail_with_one(suite, tmp_path):
    waivers = tmp_path / "waivers.txt"
    for reason, outcome in (("S-402", "failed"), ("our fake is like that", "waived")):
        waivers.write_text(f"{CASE}: {reason}\n")
        assert outcomes(suite("--only", CASE, "--waivers", waivers, fake="fail")[1])[CASE] == outcome


def test_a_must_pass_list_may_say_how_it_differs_from_another(tmp_path, monkeypatch):
    monkeypatch.setattr(expectations, "FOLDER", tmp_path)
    (tmp_path / "v1.4.txt").write_text("# all\none\ntwo\n")
    (tmp_path / "v1.3.txt").write_text("as v1.4.txt\nwithout one\nand three\n")
    assert expectations.must_pass((1, 3)) == ["two", "three"]
    assert expectations.must_pass((1, 4)) == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "words"),
    [(CASE, "case id: reason"), (CASE + ": ", "case id: reason"), ("nobody: because", "no case is called")],
)
def test_a_waiver_needs_a_reason_and_a_case(suite, tmp_path, text, words):
    (tmp_path / "waivers.txt").write_text(text)
    status, report, output = suite("--only", CASE, "--waivers", tmp_path / "waivers.txt")
    assert (status, report) == (2, None)
    assert words in output


def test_a_file_of_waivers_is_a_small_regular_file(suite, tmp_path):
    status, report, output = suite("--only", CASE, "--waivers", tmp_path / "none")
    assert (status, report) == (2, None)
    assert f"error: {tmp_path / 'none'}: No such file or directory" in output
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    for path, words in (("/dev/zero", "is not a regular file"), (tmp_path / "fifo", "is not a regular file"),
                        (tmp_path / "large", "expected at most"), (tmp_path / "none", "No such file")):  # fmt: skip
        status, report, output = suite("--only", CASE, "--waivers", path)
        assert (status, report) == (2, None)
        assert words in output


def test_nothing_executed_is_a_failure(suite):
    assert suite("--only", "no such case")[0] == 3
    status, report, output = suite("--only", "C-23 ids are consecutive")  # the emulator's shim
    assert status == 3
    assert set(outcomes(report).values()) == {"not run"}
    assert "nothing was executed" in output


def test_open_must_pass_cases_are_counted_and_fail_when_asked(suite):
    words = ("--only", CASE, "--only", "C-23 ids are consecutive")
    status, report, output = suite(*words)
    assert status == 0
    assert report["verdict"] == "conforms as far as it was tested: 1 must-pass cases were not run"
    assert "another package" in output  # the reason
    assert suite(*words, "--complete")[0] == 1


def test_a_must_pass_case_that_is_gone_is_a_failure(suite, tmp_path):
    must_pass = tmp_path / "judge/must_pass/v1.4.txt"
    must_pass.write_text(must_pass.read_text() + "refusals::test_that_was_removed\n")
    status, report, output = suite("--only", CASE)
    assert status == 1
    assert report["missing"] == ["refusals::test_that_was_removed"]
    assert "MISSING" in output


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


def test_the_must_pass_list_of_the_version_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(expectations, "FOLDER", tmp_path)
    for version in ("1.3", "1.4", "2.0"):
        (tmp_path / f"v{version}.txt").write_text(f"# which\nof {version}\n")
    for version, expected in (((1, 2), "1.3"), ((1, 3), "1.3"), ((1, 9), "1.4"), ((2, 0), "2.0"), ((3, 0), "2.0")):
        assert expectations.must_pass(version) == [f"of {expected}"]


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
