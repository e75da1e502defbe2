"""The example of every finding of strict mode, in each of its modes."""

from __future__ import annotations

import pytest

from tcim_lite import layers

CATALOGUE = {kind.code: kind for kind in layers.catalogue()}
EXAMPLES = [code for code, kind in CATALOGUE.items() if kind.example]
# Calls that fail by themselves, or because new memory is NaN; these errors are the program's, not what is tested.
FAILS_ANYWAY = {"S-101", "S-102", "S-105", "S-201", "S-304", "S-402", "S-404", "S-902"}
FAILS_WITH = {"S-404": "ArgumentError ", "S-902": "UnsupportedError "}  # the finding explains an error of the call


@pytest.fixture
def run_examples(run_script):
    """run_examples(mode) -> (code, number of the example's last line, what it printed) of each, run in one process.

    Each has a folder and models of its own: one changes its model.
    """

    def run(mode: str) -> list[tuple[str, int, list[str]]]:
        text = f"""
import os, shutil
from pathlib import Path
models = [path.resolve() for path in Path().glob("*.hmm")]
os.environ["TCIM_LITE_STRICT"] = {mode!r}
import numpy as np
import tcim_lite.runtime as rt
from tcim_lite import layers
from tcim_lite.errors import TcimError
"""
        last = []
        for code in EXAMPLES:
            text += f"""
folder = Path({code!r}).resolve()
folder.mkdir()
for model in models:
    shutil.copy(model, folder)
os.chdir(folder)
def example():
    try:
"""
            text += "".join(f"        {line}\n" for line in CATALOGUE[code].example.splitlines())
            last.append(text.count("\n"))
            text += """\
    except TcimError as error:
        print(type(error).__name__, getattr(error, "code", ""))
example()
for finding in layers.take_findings():
    print(finding.code, finding.site, finding.message)
print("---")
os.chdir("..")
"""
        printed = [part.strip().splitlines() for part in f"{run_script(text)}\n".split("---\n")]
        assert printed.pop() == []
        return list(zip(EXAMPLES, last, printed, strict=True))

    return run


def test_the_example_of_a_finding_raises_it_at_its_last_line(run_examples, tmp_path):
    for code, line, printed in run_examples("error"):
        error, finding = printed
        assert error == FAILS_WITH.get(code, f"StrictError {code}")
        assert finding.startswith(f"{code} {tmp_path / 'script.py'}:{line} {code}: {CATALOGUE[code].title} ")
        for text in (CATALOGUE[code].rule, CATALOGUE[code].fault, CATALOGUE[code].fix, f"tcim-lite explain {code}"):
            assert text in finding


def test_in_mode_warn_the_call_goes_on_as_without(run_examples):
    for code, _, (*errors, finding) in run_examples("warn"):
        assert finding.startswith(f"{code} ")
        assert bool(errors) == (code in FAILS_ANYWAY), code
        assert not any("StrictError" in error for error in errors)


def test_without_strict_mode_nothing_is_looked_at(run_examples):
    printed = [line for _, _, lines in run_examples("off") for line in lines]
    assert printed
    assert not any("S-" in line for line in printed)
