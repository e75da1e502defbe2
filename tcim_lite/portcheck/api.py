"""The status of every name of the API, from the marks of the Python packages and a table of all else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..marks.reader import marked_names
from . import table

STATUSES = ("missing", "extension", "chosen", "exact")


@dataclass(frozen=True, slots=True)
class Entry:
    """A name of Python, of C++, or what both have.

    Attributes:
        python: Name in `tcim_lite.runtime`, or from another module on; "" if Python has it not.
        cpp: Name in `tcim::`, or a header; "" if C++ has it not.
        status: One of `STATUSES`.
        section: Of the specification, "" for what is not in it.
        text: What was chosen, or what to do instead.
        result: What a call or a property of Python returns: a class of the API, "ndarray", or "".
    """

    python: str
    cpp: str
    status: str
    section: str
    text: str
    result: str = ""


def _marked() -> Iterator[Entry]:
    paired = set()  # what both packages have is paired once
    for package, prefix in (("runtime", ""), ("dev_ctrl", "dev_ctrl.")):
        found = list(marked_names(package))
        classes = {each.name for each in found}
        for each in found:
            cpp = "" if each.cpp in paired else each.cpp
            paired.add(cpp)
            result = prefix + each.result if each.result in classes else each.result
            yield Entry(prefix + each.name, cpp, each.status, each.section, each.text, result)


def _listed(lines: str) -> Iterator[tuple[str, str, str, str]]:
    for line in filter(None, lines.strip().splitlines()):
        name, status, section, text = (field.strip() for field in line.split("|", 3))
        yield name, status, "" if section == "-" else section, text


ENTRIES = [
    *_marked(),
    *(Entry(name, "", *rest) for name, *rest in _listed(table.PYTHON)),
    *(Entry("", name, *rest) for name, *rest in _listed(table.CPP)),
]
PYTHON = {entry.python: entry for entry in ENTRIES if entry.python}
CPP = {entry.cpp: entry for entry in ENTRIES if entry.cpp}
CLASSES = {name.rpartition(".")[0] for name in PYTHON if name.rpartition(".")[0] and name.rpartition(".")[2].islower()}
CLASSES = {name for name in CLASSES if name.rpartition(".")[2][:1].isupper()} | {"Stream", "RunOption"}
RESULTS = {name: entry.result for name, entry in PYTHON.items() if entry.result in CLASSES or entry.result == "ndarray"}

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
    """The entry of a name that has no status."""
    return Entry(name, "", "missing", "", "neither the emulator nor the documented API has it")


def _section(entry: Entry) -> list[int]:
    return [int(part) for part in entry.section.split(".") if part]


def page() -> str:
    """docs/api-status.md."""
    counts = Counter(entry.status for entry in ENTRIES)
    lines = [
        "# Status of every API call",
        "",
        "Made by `tcim-lite port-check --table` from the marks in `tcim_lite/runtime` and `tcim_lite/dev_ctrl`",
        "(`tcim_lite/marks`) and from `tcim_lite/portcheck/table.py`. Sections are those of the [API",
        "contract](conformance.md#the-api-contract). "
        f"{counts['exact']} calls are exact: the contract says what they do, and they do that.",
        f"{counts['chosen']} are chosen: the contract is silent on a point, and the text says what the emulator does. "
        f"{counts['missing']} are missing,",
        f"and {counts['extension']} are extensions, which the card does not have.",
        "[port-check](port-check.md) names those that a program uses.",
    ]
    for status in STATUSES:
        lines += ["", f"## {status.capitalize()}", "| Python | C++ | section | |", "|---|---|---|---|"]
        for entry in sorted(ENTRIES, key=_section):
            if entry.status == status:
                names = (f"`{name}`" if name else "" for name in (entry.python, entry.cpp))
                lines.append(f"| {' | '.join(names)} | {entry.section} | {entry.text} |")
    return "\n".join(lines) + "\n"
