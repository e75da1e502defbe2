"""Device states, as far as programs beside the vendor's own tools use them."""

from __future__ import annotations

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
    """Device memory in MB of 2**20 bytes, over all processes."""

    total: float
    used: float
    free: float


class DeviceMonitor:
    """Looks at one device, anew at every access. IndexError for a device that does not exist."""

    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id
        self._state()

    @property
    def name(self) -> str:
        """The device's name."""
        return self._state().name

    @property
    def mem_info(self) -> MemInfo:
        """The device's memory."""
        state = self._state()
        total, used = state.memory_total / (1 << 20), state.memory_used / (1 << 20)
        return MemInfo(total, used, max(0.0, total - used))

    @property
    def utilization(self) -> float:
        """Percent of the last second."""
        return self._state().utilization

    def _state(self) -> DeviceState:
        states = snapshot().devices
        for state in states:
            if state.id == self.device_id:
                return state
        raise IndexError(f"device {self.device_id} does not exist; there are {[state.id for state in states]}")


class SmiInfo:
    """All devices.

    Attributes:
        devices: a `DeviceMonitor` each.
    """

    def __init__(self) -> None:
        self.devices = [DeviceMonitor(state.id) for state in snapshot().devices]

    @property
    def device_num(self) -> int:
        """The number of devices."""
        return len(self.devices)
