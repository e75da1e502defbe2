"""Every corner of the contract has a test that carries its number."""

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
CORNERS = range(1, 33)


def test_every_corner_has_a_test():
    names = set()
    for path in TESTS.rglob("*"):
        if path.suffix == ".py":
            names |= set(re.findall(r"^\s*def (test_c\d\d_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        elif path.suffix == ".cpp":  # the C++ surface
            names |= set(re.findall(r"\b(test_c\d\d_\w+)\(", path.read_text(encoding="utf-8")))
    covered = {int(re.match(r"test_c(\d\d)", name).group(1)) for name in names}
    assert covered == set(CORNERS), f"without a test: {sorted(set(CORNERS) - covered)}"
