"""All devices and the processes that use them; what `tcim-lite smi` and the `hmatc` shim show. Not a vendor API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcim_lite import _core
from tcim_lite.dev_ctrl.hal_device import DvfsMode
from tcim_lite.errors import DeviceError

__all__ = ["DeviceState", "ProcessState", "Snapshot", "snapshot"]


@dataclass(frozen=True)
class DeviceState:
    """A device over all processes. Every process may use the whole memory, so more than `memory_total` can be in use.

    Attributes:
        memory_used: bytes.
        memory_total: bytes.
        utilization: percent of the last second; processes add up, to 100 at most.
        clock_mhz: the highest any process has it at.
        dvfs_mode: `ON_DEMAND` if every process that uses the device has set it.
        modelled_power_watts: of the board, from `utilization` and a profile ([clock](../clock.md)).
        modelled_temperature_c: likewise, in degrees Celsius; by figures that are chosen, since none are published.
    """

    id: int
    name: str
    memory_used: int
    memory_total: int
    utilization: float
    clock_mhz: int
    dvfs_mode: DvfsMode
    modelled_power_watts: float
    modelled_temperature_c: float


@dataclass(frozen=True)
class ProcessState:
    """A device as one process uses it: bytes, and percent of the last second."""

    pid: int
    command: str
    device_id: int
    memory_used: int
    utilization: float


@dataclass(frozen=True)
class Snapshot:
    """Devices by id, processes by pid and device. `problem` says why processes are missing, if that is known."""

    devices: list[DeviceState]
    processes: list[ProcessState]
    problem: str | None


def snapshot() -> Snapshot:
    """The devices of this process's environment, those that other processes of this user use, and these processes.

    Raises:
        TcimError: an environment variable that declares devices holds something unreadable.
    """
    usages: Sequence[_core.ProcessUsage] = []
    problem = None
    try:
        usages = sorted(_core.process_usage(), key=lambda usage: (usage.pid, usage.device_id))
    except DeviceError as error:
        problem = str(error)
    profiles = {profile.id: profile for profile in _core.visible_devices()}
    devices = []
    for device_id in sorted({*profiles, *(usage.device_id for usage in usages)}):
        users = [usage for usage in usages if usage.device_id == device_id]
        devices.append(_device(device_id, profiles.get(device_id), users))
    processes = [
        ProcessState(usage.pid, usage.command, usage.device_id, usage.memory_used, round(100 * usage.utilization, 1))
        for usage in usages
    ]
    return Snapshot(devices, processes, problem)


def _device(device_id: int, profile: _core.DeviceProfile | None, users: Sequence[_core.ProcessUsage]) -> DeviceState:
    """`profile` is None for a device that only other processes know."""
    share = min(1.0, sum(usage.utilization for usage in users))
    on_demand = bool(users) and all(usage.mode == DvfsMode.ON_DEMAND for usage in users)
    return DeviceState(
        id=device_id,
        name=users[0].device_name if profile is None else profile.name,
        memory_used=sum(usage.memory_used for usage in users),
        memory_total=users[0].memory_total if profile is None else profile.memory_total,
        utilization=round(100 * share, 1),
        clock_mhz=max([usage.clock_mhz for usage in users] or ([] if profile is None else [profile.clock_mhz])),
        dvfs_mode=DvfsMode.ON_DEMAND if on_demand else DvfsMode.PERFORMANCE,
        modelled_power_watts=round(_core.modelled_power_watts(share), 1),
        modelled_temperature_c=round(_core.modelled_temperature_c(share), 1),
    )
