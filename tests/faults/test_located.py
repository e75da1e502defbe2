"""docs/located-faults.md says what `tcim-lite diff` names: its rows are whole, its share is enough, and rows repeat."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import located
from catalogue import FAULTS
from reach import EXPECTED, OUT_OF_REACH

SAMPLE = (
    "weight layers.1.mlp.down_proj.weight", "position layers.0.attn.k", "layers 0 and 1 swapped",
    "cache_row_one_off", "tie_to_the_higher_expert", "verify_rows_ignored", "rounds_ignored",
)  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    """The cells of each row of the page, by the error."""
    cells = re.findall(r"^\| `(.+?)` \| (.*) \|$", located.PAGE.read_text(encoding="utf-8"), re.M)
    assert len(cells) == len(dict(cells))
    return {name: rest.split(" | ") for name, rest in cells}


def test_every_seeded_fault_and_planted_error_is_on_the_page(rows):
    assert rows.keys() >= FAULTS.keys()
    planted = rows.keys() - FAULTS.keys()
    assert {name.split(" ")[0] for name in planted} >= {"weight", "position", "layers"}
    assert len(planted) >= 20
    assert "UNEXPLAINED" not in located.PAGE.read_text(encoding="utf-8")


def test_diff_locates_enough_of_the_errors_that_change_a_run(rows):
    verdicts = [cells[-1] for cells in rows.values() if len(cells) == 3]
    assert set(verdicts) <= {"yes", "no"}
    assert len(verdicts) > 35
    share = verdicts.count("yes") / len(verdicts)
    assert share >= located.LEAST
    text = located.PAGE.read_text(encoding="utf-8")
    assert f"{len(verdicts)} of them change a tensor" in text
    assert f"names the exact op of {verdicts.count('yes')} ({share:.0%})" in text
    told = f"Of {len(verdicts)} planted errors that change a tensor it names the exact op of {verdicts.count('yes')}:"
    assert told in (located.PAGE.parent / "diff.md").read_text(encoding="utf-8")


def test_every_fault_has_an_op_or_a_reason():
    assert EXPECTED.keys() | OUT_OF_REACH.keys() <= FAULTS.keys()
    assert located.RUNS_OF.keys() <= FAULTS.keys()


@pytest.mark.slow
@pytest.mark.build
def test_rows_of_the_page_repeat(rows):
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        pytest.skip("no C++ compiler")
    for row in located.rows_of([] if os.environ.get("TCIM_LITE_LOCATE") == "all" else list(SAMPLE)):
        (line,) = (line for line in located.page([row]).splitlines() if line.startswith(f"| `{row.name}`"))
        assert line == f"| `{row.name}` | {' | '.join(rows[row.name])} |"
