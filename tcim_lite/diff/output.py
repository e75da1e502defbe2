"""The folder that `tcim-lite diff` writes: it replaces what an earlier diff wrote there, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from ..errors import ArgumentError

MARK = "written_by_diff.txt"
_FOLDERS = ("a", "b", "cut")


def clear_output(folder: Path, read: Iterable[Path]) -> None:
    """Makes the folder, without what an earlier diff left in it.

    Args:
        folder: Where a diff writes.
        read: What this diff reads.

    Raises:
        ArgumentError: The folder has such files that no diff wrote, or they are among what is read; nothing is lost.
    """
    replaced = [(folder / name).resolve() for name in _FOLDERS]
    for path in read:
        inside = {path.resolve(), *path.resolve().parents}
        if lost := [each for each in replaced if each in inside]:
            raise ArgumentError(f"{path} lies in {lost[0]}, which this diff replaces; give another folder with -o")
    mark = folder / MARK
    if not mark.is_file() and (kept := [name for name in (*_FOLDERS, "index.html") if os.path.lexists(folder / name)]):
        raise ArgumentError(
            f"{folder} has {', '.join(kept)}, which no diff wrote and this would replace; give another folder with -o"
        )
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text(f"The next `tcim-lite diff` into this folder replaces {', '.join(_FOLDERS)} and index.html.\n")
    for name in _FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
