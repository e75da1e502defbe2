"""Device states, as the vendor's module of this name gives them, over all processes of this user."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tcim_lite.dev_ctrl.monitor import DeviceState, snapshot
from tcim_lite.runtime import DevManager

__all__ = ["DeviceMonitor", "MemInfo", "SmiInfo", "device_ctc_check"]


def device_ctc_check(device_ids: Sequence[int]) -> bool:
    """Whether these devices can work together: emulated ones can if they all exist and none is named twice."""
    ids = list(device_ids)
    return bool(ids) and len(set(ids)) == len(ids) and min(ids) >= 0 and DevManager(ids).verify()


@dataclass(frozen=True)
class MemInfo:
    """Device memory in MB of 2**20 bytes; whatever is used counts as 1 at least."""

    total: int
    used: int
    free: int


class SmiInfo:
    """Looks at one device, anew at every call. IndexError for a device that does not exist."""

    def __init__(self, device_id: int = 0) -> None:
        self._device_id = device_id

    def get_ipu_use_rate(self) -> float:
        """The busy share of the last second, 0 to 1."""
        return _state(self._device_id).utilization / 100

    def get_temperature(self) -> float:
        """Degrees Celsius, modelled from the busy share."""
        return _state(self._device_id).modelled_temperature_c

    def get_mem_info(self) -> MemInfo:
        """The device's memory."""
        state = _state(self._device_id)
        total, used = state.memory_total >> 20, -(-state.memory_used >> 20)
        return MemInfo(total, used, max(0, total - used))


class DeviceMonitor:
    """Looks at a device every `interval` milliseconds from `start` to `stop`, which prints the highest values seen.

    Raises:
        RuntimeError: the id is negative.
    """

    def __init__(self, device_id: int = 0, interval: int = 100) -> None:
        if device_id < 0:
            raise RuntimeError(f"device id {device_id}: ids start at 0")
        self._device_id = device_id
        self._interval_s = (interval if interval > 0 else 100) / 1000
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._highest = (0.0, 0.0, 0)

    def start(self) -> None:
        """Begins to look. IndexError for a device that does not exist, RuntimeError while it looks already."""
        if self._thread is not None:
            raise RuntimeError(f"the monitor of device {self._device_id} is running; stop it first")
        self._highest = (0.0, 0.0, 0)
        self._look()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._watch, name="hmatc.smi", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends, and prints; does nothing if it was not started."""
        if self._thread is None:
            return
        self._stopped.set()
        self._thread.join()
        self._thread = None
        share, celsius, megabytes = self._highest
        print(f"device {self._device_id}, highest: {share:.3f} busy, {celsius:.1f} C, {megabytes} MB of memory used")

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._look()

    def _look(self) -> None:
        info = SmiInfo(self._device_id)
        seen = (info.get_ipu_use_rate(), info.get_temperature(), info.get_mem_info().used)
        self._highest = tuple(max(pair) for pair in zip(self._highest, seen, strict=True))


def _state(device_id: int) -> DeviceState:
    states = snapshot().devices
    for state in states:
        if state.id == device_id:
            return state
    raise IndexError(f"device {device_id} does not exist; there are {[state.id for state in states]}")
