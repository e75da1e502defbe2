"""Files that one writer has for itself, whatever path it is found by."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import BinaryIO

__all__ = ["close_own", "open_own"]


def open_own(path: str | os.PathLike[str]) -> BinaryIO | None:
    """An empty file to write to; None if another writer has it, which keeps what it wrote.

    Without a buffer, of which the child of a fork would write its copy at its exit.
    """
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb", buffering=0)
    try:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:  # there are file systems without locks
                if error.errno == errno.EWOULDBLOCK:
                    file.close()
                    return None
            file.truncate(0)
    except BaseException:
        file.close()
        raise
    return file


def close_own(file: BinaryIO) -> None:
    """The child of a fork may have the file as well: the lock ends here even so."""
    with contextlib.suppress(OSError):  # no lock was possible
        fcntl.flock(file, fcntl.LOCK_UN)
    file.close()
