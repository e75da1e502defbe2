"""Every seeded fault, and the page that lists them: `python tests/faults/catalogue.py > docs/seeded-faults.md`."""

from __future__ import annotations

from backend_faults import BACKEND
from core_faults import CALLS, FACADE
from module_faults import MODULES
from python_faults import PYTHON

LAYERS = {
    "Core": [*MODULES, *CALLS],
    "Bindings and C++ facade": FACADE,
    "CPU backend": BACKEND,
    "Python facade": PYTHON,
}
FAULTS = {fault.name: fault for layer in LAYERS.values() for fault in layer}

INTRODUCTION = """# Seeded faults

These {count} mistakes test the conformance suite itself: each is built into a copy of the emulator, and the suite
catches each. The list is in `tests/faults`. `tests/faults/test_faults.py` builds the copy, checks that the cases named
below pass while no fault is active, and that each fault fails the cases named beside it. Other cases may fail too:
`python tests/faults/run.py --tier full NAME` runs a tier with one fault and prints every failing case; without a name
it runs every fault in turn.

Faults are edits of a copy of the sources; the product contains none. The test fails if the line that an edit changes no
longer exists.
This page is generated: `python tests/faults/catalogue.py > docs/seeded-faults.md`."""


def page() -> str:
    """The page in Markdown."""
    parts = [INTRODUCTION.format(count=len(FAULTS))]
    for layer, faults in LAYERS.items():
        rows = [
            f"## {layer}\n",
            "| fault | what goes wrong | breaks | seeded in | caught by |",
            "|---|---|---|---|---|",
        ]
        for fault in faults:
            cases = ", ".join(f"`{case}`" for case in fault.caught_by)
            rows.append(f"| `{fault.name}` | {fault.what} | {fault.rule} | `{fault.file}` | {cases} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
