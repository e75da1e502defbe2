"""docs/hmm-format.md shows the smallest file and lists every rejection."""

from __future__ import annotations

from pathlib import Path

from malformed_files import CASES

ROOT = Path(__file__).parent.parent


def test_format_page_shows_the_smallest_file():
    page = (ROOT / "docs/hmm-format.md").read_text()
    assert hexdump((ROOT / "tests/data/hmm/minimal.hmm").read_bytes()) in page


def test_format_page_lists_every_rejection():
    page = (ROOT / "docs/hmm-format.md").read_text()
    assert [name for name in CASES if f"`{name}`" not in page] == []


def hexdump(data: bytes) -> str:
    """As `xxd` prints it."""
    lines = []
    for begin in range(0, len(data), 16):
        row = data[begin : begin + 16]
        pairs = " ".join(row[i : i + 2].hex() for i in range(0, len(row), 2))
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{begin:08x}: {pairs:<39}  {characters}\n")
    return "".join(lines)
