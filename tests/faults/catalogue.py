"""Every seeded fault, and the page that lists them: `python tests/faults/catalogue.py > docs/seeded-faults.md`."""

from __future__ import annotations

from backend_faults import BACKEND
from core_faults import FACADE, RUNTIME
from python_faults import PYTHON

LAYERS = {"Core": RUNTIME, "Bindings and C++ facade": FACADE, "CPU backend": BACKEND, "Python facade": PYTHON}
FAULTS = {fault.name: fault for layer in LAYERS.values() for fault in layer}

INTRODUCTION = """# Seeded faults

What the conformance suite is worth: {count} mistakes, each seeded into a build of the emulator, each caught by it.
`tests/faults` has the list. `tests/faults/test_faults.py` makes the build, checks that the cases named below pass in it
while no fault is chosen, and that each fault fails the cases named with it. They are some of those that do:
`python tests/faults/run.py --tier full NAME` runs a tier with one fault and prints all of them; without a name, with
every fault in turn.

The seeds are edits of a copy of the sources; the product has none. An edit whose place has changed fails the test.
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
