"""Waivers and lists of what must pass: what they change in a run, and which are refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tcim_lite.conformance import expectations

sys.path.insert(0, str(Path(__file__).parent))
from runner_cases import CASE, VERSION, outcomes

pytestmark = pytest.mark.slow


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
    assert expectations.must_pass((1, 3), []) == ["two", "three"]
    assert expectations.must_pass((1, 4), []) == ["one", "two"]


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


def test_open_must_pass_cases_are_counted_and_fail_when_asked(suite):
    words = ("--only", CASE, "--only", "C-23 ids are consecutive")
    status, report, output = suite(*words)
    assert status == 0
    assert report["verdict"] == "conforms as far as it was tested: 1 must-pass cases were not run"
    assert "another package" in output  # the reason
    assert suite(*words, "--complete")[0] == 1


def test_a_must_pass_case_that_is_gone_is_a_failure(suite, tmp_path):
    must_pass = tmp_path / "judge/must_pass/v1.4.txt"
    gone = "refusals::test_that_was_removed"
    must_pass.write_text(must_pass.read_text() + f"{gone}\n{gone}[*] 3\n")
    status, report, output = suite("--only", CASE)
    assert status == 1
    assert report["missing"] == [gone, f"{gone}[*]: 3 of 3"]
    assert "MISSING" in output


def test_the_must_pass_list_of_the_version_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(expectations, "FOLDER", tmp_path)
    for version in ("1.3", "1.4", "2.0"):
        (tmp_path / f"v{version}.txt").write_text(f"# which\nof {version}\n")
    for version, expected in (((1, 2), "1.3"), ((1, 3), "1.3"), ((1, 9), "1.4"), ((2, 0), "2.0"), ((3, 0), "2.0")):
        assert expectations.must_pass(version, []) == [f"of {expected}"]
