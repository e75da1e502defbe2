"""The report on a program: its uses of the API by status, and its risks."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from . import elf, python_risks
from .api import STATUSES
from .cpp_source import CppFile
from .findings import KINDS, Place, Risk, Use
from .python_source import PythonFile
from .sources import CPP, PYTHON, find
from .watch import Watched

_MOST_BYTES = 64 << 20
_ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")  # zip, gzip, bzip2, xz


@dataclass
class Report:
    """What was found.

    Attributes:
        files: That were read.
        looked_at: How many files folders had, of any kind; None if no folder was given.
        uses: Of the API, in the order of the files.
        risks: In the order of the files; those of the run at the end.
        notes: On what could not be read.
        watched: The run, if there was one.
    """

    files: list[str] = field(default_factory=list)
    looked_at: int | None = None
    uses: list[Use] = field(default_factory=list)
    risks: list[Risk] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    watched: Watched | None = None

    @property
    def status(self) -> int:
        """The exit status: 1 if a call is missing or a pattern is risky, else 0."""
        return int(bool(self.risks) or any(use.entry.status == "missing" for use in self.uses))

    def places(self) -> dict[str, dict[str, list[Place]]]:
        """By status, by name: where it is used."""
        found: dict[str, dict[str, list[Place]]] = {status: defaultdict(list) for status in STATUSES}
        for use in self.uses:
            places = found[use.entry.status][use.name]
            if use.place not in places:
                places.append(use.place)
        return found

    def lines(self) -> Iterator[str]:
        """The report as text."""
        read = ", ".join(self.files) if len(self.files) < 6 else f"{len(self.files)} files"
        yield f"read: {read}" if self.looked_at is None else f"read: {read}, of {self.looked_at} looked at"
        if self.watched is not None:
            ran = self.watched
            yield f"watched: {ran.calls} calls of {ran.processes} processes, exit status {ran.status}"
        yield from (f"note: {note}" for note in self.notes)
        texts = {use.name: use.entry.text for use in self.uses}
        for status, names in self.places().items():
            if not names:
                continue
            if status == "exact":
                yield f"exact: {', '.join(names)}"
                continue
            yield f"{status}:"
            for name, places in names.items():
                more = f" and {len(places) - 1} more" if len(places) > 1 else ""
                yield f"  {name}  {places[0]}{more}"
                if texts[name]:
                    yield f"      {texts[name]}"
        if not self.uses:
            yield "uses nothing of the API"
        if self.risks:
            yield "risky:"
        for each in self.risks:
            yield f"  {each.code} {each.place}  {KINDS[each.code][0] + ' ' if each.code in KINDS else ''}{each.detail}"
            yield f"      Fix: {each.fix}"
        if not self.risks:
            yield "no risky pattern"

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        calls = [
            {
                "name": name,
                "status": status,
                "text": next(use.entry.text for use in self.uses if use.name == name),
                "places": [{"file": place.file, "line": place.line} for place in places],
            }
            for status, names in self.places().items()
            for name, places in names.items()
        ]
        risks = [
            {
                "code": each.code,
                "file": each.place.file,
                "line": each.place.line,
                "title": KINDS[each.code][0] if each.code in KINDS else "",
                "detail": each.detail,
                "fix": each.fix,
            }
            for each in self.risks
        ]
        ran = self.watched
        run = None if ran is None else {"status": ran.status, "calls": ran.calls, "processes": ran.processes}
        return {
            "files": self.files,
            "looked_at": self.looked_at,
            "calls": calls,
            "risks": risks,
            "notes": self.notes,
            "run": run,
        }


def check(
    paths: Sequence[Path],
    command: Sequence[str] | None = None,
    *,
    all_to_stderr: bool = False,
    tell: Callable[[int], None] = lambda looked_at: None,
) -> Report:
    """Reads a program, and runs it if a command is given.

    Args:
        paths: Python and C++ sources, compiled programs, or folders of sources.
        command: What to run and watch.
        all_to_stderr: The command's standard output as well.
        tell: Called now and then with the number of files looked at in folders.

    Raises:
        ArgumentError: A path that is not there or is no source, no source in a folder or too many, or a program that
            cannot be started.
    """
    sources = find(paths, tell)
    report = Report(looked_at=sources.looked_at)
    report.notes += [f"left out: {why} ({count})" for why, count in sorted(sources.left_out.items())]
    python, cpp = _read(report, sources.files, () if command is not None else paths, paths)
    # A file that only receives modules and tensors belongs to the program as well.
    if any(file.names_api for file in python):
        for script in python:
            report.uses += script.uses()
            report.risks += python_risks.risks(script)
    if any(file.names_api for file in cpp):
        for source in cpp:
            report.uses += source.uses()
            report.risks += source.risks()
    if command is not None:
        report.watched = Watched(command, all_to_stderr=all_to_stderr)
        report.uses += [use for use in report.watched.uses if use.place.line or not cpp]
        known = {(each.code, _absolute(each.place)) for each in report.risks}
        # Strict mode sees at run time what P-201 and P-301 see in the text.
        same = {"S-301": "P-201", "S-302": "P-201", "S-501": "P-301"}
        for each in report.watched.risks:
            if (same.get(each.code, each.code), _absolute(each.place)) not in known:
                report.risks.append(each)
                known.add((each.code, _absolute(each.place)))
    return report


def _read(
    report: Report, files: Sequence[Path], must_parse: Sequence[Path], must_read: Sequence[Path]
) -> tuple[list[PythonFile], list[CppFile]]:
    """Returns the sources among the files, and reports what compiled programs use and what is left out."""
    python: list[PythonFile] = []
    cpp: list[CppFile] = []
    for path in files:
        try:
            content = path.read_bytes()
        except OSError as error:
            if path in must_read:
                raise
            report.notes.append(f"{path} cannot be read ({error.strerror}); it was left out")
            continue
        if content.startswith(_ARCHIVES):
            raise ArgumentError(f"{path}: is an archive; unpack it and give the folder")
        if len(content) > _MOST_BYTES and not elf.is_elf(content):
            raise ArgumentError(f"{path}: has {len(content)} bytes, which is no source")
        report.files.append(str(path))
        if elf.is_elf(content):
            try:
                report.uses += elf.uses(content, str(path))
            except ValueError as error:
                raise ArgumentError(f"{path}: {error}") from None
        elif path.suffix in CPP:
            cpp.append(CppFile(str(path), content.decode("utf-8", "replace")))
        else:
            try:
                python.append(PythonFile(path, str(path), _parsed(path, content)))
            except (SyntaxError, ValueError, RecursionError) as error:
                told = f"{path} cannot be parsed by this Python ({error})"
                if path in must_parse:
                    raise ArgumentError(f"{told}; give Python or C++ sources, or a compiled program") from None
                report.files.remove(str(path))
                report.notes.append(f"{told}; it was not read")
    return python, cpp


def _parsed(path: Path, content: bytes) -> ast.Module:
    """A Python source. One that is not named so has to do something: JSON, such as a notebook, has the same syntax.

    Raises:
        SyntaxError, ValueError, RecursionError: It is none, or nests deeper than Python's parser goes.
    """
    try:
        tree = ast.parse(content)
    except MemoryError:  # what the parser calls its own stack's end
        raise RecursionError("too deeply nested") from None
    if path.suffix not in PYTHON and not any(
        isinstance(node, (ast.Import, ast.ImportFrom, ast.Call)) for node in ast.walk(tree)
    ):
        raise ValueError("data, not a program")
    return tree


def _absolute(place: Place) -> tuple[str, int]:
    return str(Path(place.file).resolve()), place.line
