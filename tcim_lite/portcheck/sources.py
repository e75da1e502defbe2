"""Which files a check reads: those that are named, and the sources of a folder that can be a program's own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import ArgumentError

PYTHON = {".py"}
CPP = {".cc", ".cpp", ".cxx", ".c", ".h", ".hpp", ".hh", ".cu"}
# Of one folder. All that is installed on a small machine is more, and takes minutes to parse.
MOST_SOURCES = 5000
# Of a source found in a folder; larger ones are data or other projects in one file.
MOST_SOURCE_BYTES = 4 << 20
# Folders that are left out, by name or by a file in them.
_NAMES = {
    **dict.fromkeys((".git", ".hg", ".svn"), "version control"),
    **dict.fromkeys(("site-packages", "dist-packages", "node_modules"), "installed packages"),
    **dict.fromkeys((".venv", ".tox", ".nox"), "virtual environments"),
    **dict.fromkeys(("build", "_build", "__pycache__"), "build folders"),
}
_MARKS = {"pyvenv.cfg": "virtual environments", "conda-meta": "virtual environments", "CMakeCache.txt": "build folders"}
_SYSTEM = ("/proc", "/sys", "/dev")


@dataclass
class Sources:
    """The files to read.

    Attributes:
        files: In the order of the paths; those of a folder by name.
        looked_at: How many files the folders had, of any kind; None without a folder.
        left_out: By why, how many folders or files.
    """

    files: list[Path] = field(default_factory=list)
    looked_at: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)


def find(paths: Sequence[Path], tell: Callable[[int], None] = lambda looked_at: None) -> Sources:
    """Takes files as they are and searches folders, without following links to folders.

    Args:
        paths: Files and folders.
        tell: Called with the number of files looked at, once for each folder that is entered.

    Raises:
        ArgumentError: A path that is not there, or a folder with no source or far too many.
    """
    sources = Sources()
    for path in paths:
        if path.is_dir():
            files = sorted(_inside(path, sources, tell))
            if not files:
                raise ArgumentError(f"{path}: has no Python or C++ source{_besides(sources)}")
            sources.files += files
        elif path.is_file():
            sources.files.append(path)
        else:
            raise ArgumentError(f"{path}: there is no such file or folder")
    sources.files = list(dict.fromkeys(sources.files))
    return sources


def _besides(sources: Sources) -> str:
    """What was left out, to end a sentence with."""
    left_out = ", ".join(f"{why} ({count})" for why, count in sorted(sources.left_out.items()))
    return f" ({sources.looked_at} files looked at; left out: {left_out})" if left_out else ""


def _inside(top: Path, sources: Sources, tell: Callable[[int], None]) -> Iterator[Path]:
    """The sources of a folder."""
    found = 0
    sources.looked_at = sources.looked_at or 0

    def refused(error: OSError) -> None:
        sources.left_out["folders that cannot be opened"] += 1

    for folder, names, files in os.walk(top, onerror=refused):
        why = _why_not(folder, names, files) if folder != str(top) else None
        if why is not None:
            sources.left_out[why] += 1
            names.clear()
            continue
        sources.looked_at += len(files)
        tell(sources.looked_at)
        for each in (Path(folder, name) for name in files):
            if each.suffix not in PYTHON | CPP or not each.is_file():
                continue
            if each.stat().st_size > MOST_SOURCE_BYTES:
                sources.left_out[f"files over {MOST_SOURCE_BYTES >> 20} MiB"] += 1
                continue
            found += 1
            if found > MOST_SOURCES:
                raise ArgumentError(
                    f"{top}: has more than {MOST_SOURCES} sources ({sources.looked_at} files looked at, up to "
                    f"{folder}), so it is not the folder of one program; give that folder, or the files"
                )
            yield each


def _why_not(folder: str, names: Sequence[str], files: Sequence[str]) -> str | None:
    """Why a folder is left out, if it is."""
    if os.path.abspath(folder) in _SYSTEM:
        return "folders of the system"
    marks = (_MARKS[name] for name in (*files, *names) if name in _MARKS)
    return _NAMES.get(os.path.basename(folder)) or next(marks, None)
