"""What a run is held against: the must-pass list of an API version, and waivers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from .small_file import read_small_file

FOLDER = Path(__file__).parent / "must_pass"


def api_version(text: str) -> tuple[int, int]:
    """(major, minor) of the first line of `get_version()`."""
    match = re.search(r"v(\d+)\.(\d+)\.\d+", text.partition("\n")[0])
    if match is None:
        raise ValueError(f"get_version() says {text!r}; expected vX.Y.Z in the first line")
    return int(match[1]), int(match[2])


def must_pass(version: tuple[int, int], known: Sequence[str]) -> list[str]:
    """The ids of the list of this version, or of the newest version before it; the oldest if there is none.

    A line is an id, or `GROUP::TEST[*] N`: so many cases of a test with parameters, which are those of `known`; if
    there are fewer, a text that is no id says so. A list may begin with `as FILE`, another list, and say what differs
    in lines `without ID` and `and ID`.
    """
    lists = {tuple(map(int, path.stem[1:].split("."))): path for path in FOLDER.glob("v*.txt")}
    fitting = [known for known in lists if known <= version] or [min(lists)]
    return _list(lists[max(fitting)], known)


def _is_findings(reason: str) -> bool:
    return re.fullmatch(r"S-\d{3}(, S-\d{3})*", reason) is not None


def explains(reason: str, detail: str) -> bool:
    """Whether a waiver is for a failure: one that lists findings of strict mode is for those that tell of one."""
    return not _is_findings(reason) or any(code in detail for code in reason.split(", "))


def wording(reason: str) -> str:
    """The reason as a report has it."""
    return f"does on purpose what strict mode reports: {reason}" if _is_findings(reason) else reason


def _list(path: Path, known: Sequence[str]) -> list[str]:
    ids: list[str] = []
    for line in _lines(path.read_text(encoding="utf-8")):
        word, _, rest = line.partition(" ")
        if word == "as":
            ids += _list(path.with_name(rest), known)
        elif word == "without":
            ids.remove(rest)
        else:
            ids += _cases(rest if word == "and" else line, known)
    return ids


def _cases(line: str, known: Sequence[str]) -> list[str]:
    test, several, count = line.partition("[*] ")
    if not several:
        return [line]
    found = [id_ for id_ in known if id_.startswith(f"{test}[")]
    gone = int(count) - len(found)
    return [*found, f"{test}[*]: {gone} of {count}"] if gone > 0 else found


def waivers(path: Path, known: Iterable[str]) -> dict[str, str]:
    """`case id: reason` per line; an id may end in * for all that begin so.

    Raises:
        ValueError: a line without a reason, one that names no case, or no text file.
    """
    ids, found = list(known), {}
    for line in _lines(read_small_file(path)):
        # Ids have colons; a reason follows the first colon with a space.
        pattern, colon, reason = line.partition(": ")
        if not colon or not reason.strip():
            raise ValueError(f"{path}: {line!r:.80}: expected `case id: reason`")
        matching = [id_ for id_ in ids if id_ == pattern or (pattern[-1] == "*" and id_.startswith(pattern[:-1]))]
        if not matching:
            raise ValueError(f"{path}: no case is called {pattern!r:.80}; --list prints their ids")
        found.update(dict.fromkeys(matching, reason.strip()))
    return found


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
