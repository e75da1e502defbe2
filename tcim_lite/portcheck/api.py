"""Look-ups in the table of statuses, and the table as a page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .table import TABLE

STATUSES = ("missing", "extension", "chosen", "exact")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the table.

    Attributes:
        python: Name in `tcim_lite.runtime`, or from another module on; "" if Python has it not.
        cpp: Name in `tcim::`, or a header; "" if C++ has it not.
        status: One of `STATUSES`.
        section: Of the specification, "" for what is not in it.
        text: What was chosen, or what to do instead.
    """

    python: str
    cpp: str
    status: str
    section: str
    text: str


def _parsed() -> list[Entry]:
    entries = []
    for line in TABLE.strip().splitlines():
        if line:
            python, cpp, status, section, text = (field.strip() for field in line.split("|", 4))
            python, cpp, section = ("" if each == "-" else each for each in (python, cpp, section))
            entries.append(Entry(python, cpp, status, section, text))
    return entries


ENTRIES = _parsed()
PYTHON = {entry.python: entry for entry in ENTRIES if entry.python}
CPP = {entry.cpp: entry for entry in ENTRIES if entry.cpp}
CLASSES = {name.rpartition(".")[0] for name in PYTHON if name.rpartition(".")[0] and name.rpartition(".")[2].islower()}
CLASSES = {name for name in CLASSES if name.rpartition(".")[2][:1].isupper()} | {"Stream", "RunOption"}

# A member of one class alone, with a name that other libraries hardly have, tells the class of what it is called on.
_OWNERS = Counter(name.rpartition(".")[2] for name in PYTHON)
DISTINCT = {
    name.rpartition(".")[2]: name.rpartition(".")[0]
    for name in PYTHON
    if name.rpartition(".")[0] in CLASSES
    and _OWNERS[name.rpartition(".")[2]] == 1
    and name.rpartition(".")[2].count("_") >= 1
    and name.rpartition(".")[2] not in ("is_match", "mem_size", "set_output", "set_stream", "device_ids", "device_id")
}


def unknown(name: str) -> Entry:
    """The entry of a name that the table has not."""
    return Entry(name, "", "missing", "", "neither the emulator nor the documented API has it")


def page() -> str:
    """docs/api-status.md."""
    counts = Counter(entry.status for entry in ENTRIES)
    lines = [
        "# Status of every API call",
        "",
        "Made from `tcim_lite/portcheck/table.py` by `tcim-lite port-check --table`; sections are those of the API",
        f"contract. {counts['exact']} calls are exact: the contract says what they do, and they do that. "
        f"{counts['chosen']} are chosen: the",
        "contract is silent on a point, and the text says what the emulator does. "
        f"{counts['missing']} are missing, {counts['extension']} are",
        "extensions, which the card has not. [port-check](port-check.md) names those that a program uses.",
    ]
    for status in STATUSES:
        lines += ["", f"## {status.capitalize()}", "| Python | C++ | section | |", "|---|---|---|---|"]
        for entry in ENTRIES:
            if entry.status == status:
                names = (f"`{name}`" if name else "" for name in (entry.python, entry.cpp))
                lines.append(f"| {' | '.join(names)} | {entry.section} | {entry.text} |")
    return "\n".join(lines) + "\n"
