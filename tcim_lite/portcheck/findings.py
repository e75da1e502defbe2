"""What a check found: uses of the API, and risky patterns."""

from __future__ import annotations

from dataclasses import dataclass

from .api import Entry


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a source; `line` is 0 where it is not known."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Use:
    """A call or attribute of the API that a program names, or made while it was watched."""

    entry: Entry
    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Risk:
    """A risky pattern.

    Attributes:
        code: A key of `KINDS`, or of a finding of strict mode ("S-301").
        place: The line.
        detail: What stands there.
        fix: What to write instead.
    """

    code: str
    place: Place
    detail: str
    fix: str


# Code: title, fix.
KINDS = {
    "P-101": (
        "All logits are copied or converted more than once for a token.",
        "Fetch an output once after a run and keep the array; choose among the logits in their own dtype (argmax, "
        "top-k) and convert the few that remain. In C++, CastTo into one tensor made before the loop.",
    ),
    "P-102": (
        "Memory is allocated for every token.",
        "Make the tensor or array before the loop and write into it; set_input copies at call time, so one is enough.",
    ),
    "P-201": (
        "A result is read, or an input written, after run() without sync().",
        "Call sync() between, or run(sync=True). The emulator waits; the card may hand out or use old data.",
    ),
    "P-301": (
        "The bytes of a value are taken for another type.",
        "Convert the values (astype in Python, AsType or CastTo in C++), or say view(np.int8) where int8 is meant.",
    ),
}


def risk(code: str, place: Place, detail: str) -> Risk:
    """A risk of a known kind."""
    return Risk(code, place, detail, KINDS[code][1])
