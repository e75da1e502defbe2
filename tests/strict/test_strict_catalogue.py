"""Where strict mode is asked for and explained: environment, `tcim-lite explain`, docs/strict.md, the pytest plugin."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tcim_lite import layers
from tcim_lite.cli import main

ROOT = Path(__file__).parent.parent.parent
CATALOGUE = {kind.code: kind for kind in layers.catalogue()}
FAULTS = {"user error", "contract violation", "unspecified by the vendor", "not implemented", "our bug"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TCIM_LITE_STRICT": "warn"}, "['strict']"),
        ({"TCIM_LITE_LAYERS": "trace,strict"}, "['trace', 'strict']"),
        ({"TCIM_LITE_LAYERS": "strict", "TCIM_LITE_STRICT": "off"}, "[]"),
        ({"TCIM_LITE_STRICT": "loud"}, "TCIM_LITE_STRICT='loud': expected off, warn or error"),
    ],
)
def test_the_environment_enables_strict_mode(run_script, monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = """
    from tcim_lite import layers, errors
    try:
        print(layers.active())
    except errors.TcimError as error:
        print(error)
    """
    assert run_script(text) == expected


def test_the_catalogue_is_whole():
    assert {kind.fault for kind in CATALOGUE.values()} == FAULTS
    for code, kind in CATALOGUE.items():
        assert re.fullmatch(r"S-\d{3}", code)
        assert all(text.endswith(".") for text in (kind.title, kind.rule, kind.why, kind.fix)), code
    assert [code for code, kind in CATALOGUE.items() if not kind.example] == [
        "S-901"
    ]  # a mistake of ours that is not there


def test_explain_lists_the_codes_and_prints_a_page(capsys):
    assert main(["explain"]) == 0
    assert [line[:5] for line in capsys.readouterr().out.splitlines()] == list(CATALOGUE)
    assert main(["explain", "s-401"]) == 0
    page = capsys.readouterr().out
    for text in ("S-401", "why", "rule", "fault  user error", "fix", "prefill.run(True)"):
        assert text in page
    assert main(["explain", "S-999"]) == 2
    assert "there is no finding 'S-999'" in capsys.readouterr().err


def test_the_page_of_strict_mode_is_what_the_catalogue_says(capsys):
    assert main(["explain", "--markdown"]) == 0
    assert (ROOT / "docs" / "strict.md").read_text() == capsys.readouterr().out, "docs/strict.md is old: `make docs`"


def test_the_pytest_plugin_fails_the_test_that_caused_a_finding(pytester_like):
    found = pytester_like(
        """
        import tcim_lite.runtime as rt
        def test_good():
            rt.load("add.hmm")
        def test_bad():
            rt.load("add.hmm").get_output("total")
        def test_good_again():
            rt.load("add.hmm")
        def test_that_fails_because_of_a_finding():
            rt.load("add.hmm").run(True)
        """
    )
    assert "2 failed, 2 passed" in found
    assert "S-403: Memory that nobody wrote is read." in found
    assert "test_inner.py:6" in found
    assert re.search(r"findings of strict mode call -+\nS-402: .*test_inner.py:10", found)


@pytest.fixture
def pytester_like(run_script, tmp_path):
    """Runs pytest --tcim-strict on the text in a process of its own."""

    def run(text: str) -> str:
        (tmp_path / "test_inner.py").write_text(textwrap.dedent(text))
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "--tcim-strict", "test_inner.py"]
        return run_script(f"import pytest; pytest.main({options})")

    return run
