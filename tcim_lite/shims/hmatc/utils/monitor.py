"""`ProcessMemoryMonitor`, which the vendor's demos run around their inference; reads /proc, needs no psutil."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

__all__ = ["ProcessMemoryMonitor"]

_STATUS, _MEMORY = Path("/proc/self/status"), Path("/proc/meminfo")


class ProcessMemoryMonitor:
    """Looks at this process's memory now and then, between `start` and `stop` or in a `with` block.

    Args:
        interval: Seconds from one look to the next.
        log_file: Of a line for each look; None: they are printed.
        quiet: Nothing is printed or written.

    Attributes:
        peak_memory_mb: The most that was seen, in MB of 2^20 bytes.
        is_monitoring: Between `start` and `stop`.
    """

    def __init__(self, interval: float = 2, log_file: str | None = None, quiet: bool = False) -> None:
        if interval <= 0:
            raise ValueError(f"interval={interval}: expected seconds above 0")
        self.interval, self.log_file, self.quiet = interval, log_file, quiet
        self.peak_memory_mb, self.is_monitoring = 0.0, False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def get_memory_info(self) -> dict[str, float]:
        """`rss_mb`, and `percent` of the machine's memory."""
        held, all_of_it = _kilobytes(_STATUS, "VmRSS"), _kilobytes(_MEMORY, "MemTotal")
        return {"rss_mb": held / 1024, "percent": 100 * held / all_of_it}

    def start(self) -> None:
        """Begins; does nothing where it has begun."""
        if self.is_monitoring:
            return
        self.is_monitoring, self.peak_memory_mb = True, 0.0
        self._ended.clear()
        self._look()
        self._thread = threading.Thread(target=self._watch, name="ProcessMemoryMonitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends, after a last look; does nothing where it has not begun."""
        if not self.is_monitoring:
            return
        self.is_monitoring = False
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._look()
        self._say(f"[Monitoring stopped. Peak RSS: {self.peak_memory_mb:.2f} MB]")

    def __enter__(self) -> ProcessMemoryMonitor:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self) -> None:
        while not self._ended.wait(self.interval):
            self._look()

    def _look(self) -> None:
        info = self.get_memory_info()
        self.peak_memory_mb = max(self.peak_memory_mb, info["rss_mb"])
        self._say(f"RSS: {info['rss_mb']:.2f} MB, System%: {info['percent']:.2f}%")

    def _say(self, line: str) -> None:
        if self.quiet:
            return
        if self.log_file is None:
            print(line)
            return
        with open(self.log_file, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def _kilobytes(file: Path, name: str) -> int:
    """A line of the form `name: N kB`."""
    line = next(line for line in file.read_text(encoding="ascii").splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])
