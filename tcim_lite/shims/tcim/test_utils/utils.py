"""`DeviceLock`, which a demo of speculative decoding takes from the tests of the vendor's compiler."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from tcim_lite.runtime import get_device_num

__all__ = ["DeviceLock"]


class DeviceLock:
    """Lets one program of a user at a time use a device, if all of them take the lock.

    The lock is a file in the folder for temporary files. It is free again when its process ends, however it ends. The
    emulator itself does not ask for it: programs without the lock share a device as ever.

    Args:
        target: the kind of the device, such as `xh2`.
        device_id: its id.
        name: of the program, for those who wait.

    Raises:
        IndexError: there is no such device.
    """

    def __init__(self, target: str, device_id: int = 0, name: str = "") -> None:
        if not 0 <= device_id < get_device_num():
            raise IndexError(
                f"device {device_id} does not exist; there are {get_device_num()}; set TCIM_LITE_DEVICE_NUM"
            )
        self.path = Path(tempfile.gettempdir(), f"tcim-lite-{os.getuid()}-{target}-{device_id}.lock")
        self.name = name
        self._file: int | None = None

    def __enter__(self) -> DeviceLock:
        """Waits until the device is free."""
        if self._file is not None:
            raise RuntimeError(f"{self.path} is already locked by this object; leave it first")
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(file, 256, 0).decode(errors="replace")
                print(f"waiting for {self.path}, which is held by {holder}", file=sys.stderr, flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} {self.name}".strip().encode(), 0)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Frees the device. The file stays, as others may wait for it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
