"""HalDevice: what the vendor's programs read and set on a device.

Everything is as this process sees it: memory is what it holds itself, out of the capacity it may use itself, and the
DVFS mode is its own. `tcim-lite smi` adds the processes up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from tcim_lite import _core
from tcim_lite.dev_ctrl import reset
from tcim_lite.errors import ArgumentError, DeviceError, NamedIntEnum, Status, UnsupportedError
from tcim_lite.marks import chosen, exact

__all__ = ["DvfsMode", "HalDevice", "HalDeviceFactory", "MemInfo"]

_MEGABYTE = 1 << 20


@chosen("11", "PERFORMANCE is 0, ON_DEMAND is 1; no effect on speed", "dev_ctrl::DvfsMode")
class DvfsMode(NamedIntEnum):
    """How the clock follows the load."""

    PERFORMANCE = 0
    """Always the highest clock; the default."""
    ON_DEMAND = 1
    """Half the clock while nothing runs."""


@dataclass(frozen=True)
@exact("11", "dev_ctrl::MemInfo")
class MemInfo:
    """Device memory in MB of 2**20 bytes.

    Attributes:
        mem_total: of the device.
        mem_avail: what is left of it.
        mem_used: what this process holds, at least 1 if it holds anything.
    """

    mem_total: int
    mem_avail: int
    mem_used: int


@exact("11", "dev_ctrl::HalDevice")
class HalDevice:
    """The devices of a backend; made by `HalDeviceFactory.create`.

    Methods return a `Status`, or a tuple of a `Status` and a value. A `dev_id` that does not exist gives
    `Status.INVALID_ARGUMENT`, and one that does not answer ([fault injection](../fault-injection.md))
    `Status.ERR_UNDEFINED`, with a value of zeros; no exception. A `dev_id` that is no int is a `TypeError`, and an
    environment variable that declares devices wrongly a `TcimError`.
    """

    def __init__(self, backend_name: str) -> None:
        self._backend_name = backend_name

    @exact("11", "dev_ctrl::HalDevice::GetDvfsMode")
    def get_dvfs_mode(self, dev_id: int) -> tuple[Status, DvfsMode]:
        """The mode this process has set, else `PERFORMANCE`."""
        status, telemetry = _telemetry(dev_id)
        if telemetry is None:
            return status, DvfsMode.PERFORMANCE
        return Status.OK, DvfsMode(telemetry.mode)

    @chosen("11", "stored, no effect on speed", "dev_ctrl::HalDevice::SetDvfsMode")
    def set_dvfs_mode(self, dev_id: int, mode: DvfsMode | int) -> Status:
        """Sets the mode; results and their speed stay the same.

        Returns:
            `OK`; `INVALID_ARGUMENT` for a device or a mode that does not exist; `ERR_UNDEFINED` for a device that does
            not answer.
        """
        try:
            mode = DvfsMode(mode)
        except ValueError:
            return Status.INVALID_ARGUMENT
        device_id = _existing(dev_id)
        if device_id is None:
            return Status.INVALID_ARGUMENT
        try:
            _core.set_dvfs_mode(device_id, int(mode))
        except DeviceError as error:
            return _does_not_answer(error)
        return Status.OK

    @chosen("11", "1400 MHz, ON_DEMAND idle 700", "dev_ctrl::HalDevice::GetIpuFrequency")
    def get_ipu_frequency(self, dev_id: int) -> tuple[Status, int]:
        """The clock in MHz: the profile's, 1400 by default; half of it while an `ON_DEMAND` device runs nothing."""
        status, telemetry = _telemetry(dev_id)
        if telemetry is None:
            return status, 0
        return Status.OK, telemetry.clock_mhz

    @chosen("11", "what this process holds", "dev_ctrl::HalDevice::GetMemInfo")
    def get_mem_info(self, dev_id: int) -> tuple[Status, MemInfo]:
        """Memory in MB: the device's, and what this process's modules and tensors hold of it."""
        status, telemetry = _telemetry(dev_id)
        if telemetry is None:
            return status, MemInfo(0, 0, 0)
        total, used = telemetry.memory_total // _MEGABYTE, -(-telemetry.memory_used // _MEGABYTE)
        return Status.OK, MemInfo(total, max(0, total - used), used)

    @chosen("11", "of this process", "dev_ctrl::HalDevice::GetIpuUtilRate")
    def get_ipu_util_rate(self, dev_id: int) -> tuple[Status, float]:
        """The share of the last second, in percent, in which the device ran something of this process."""
        status, telemetry = _telemetry(dev_id)
        if telemetry is None:
            return status, 0.0
        return Status.OK, round(100 * telemetry.utilization, 1)

    @chosen("11", "modules keep their memory and go on working", "dev_ctrl::HalDevice::IpuReset")
    def ipu_reset(self, dev_id: int) -> Status:
        """Runs the pre-reset callbacks, resets, runs the post-reset callbacks, each in registration order (C-17).

        Resetting waits for the work queued so far, on every stream. Modules and tensors that the callbacks leave
        alive keep their memory and their contents, and go on working.

        Callbacks run on this thread, hold no lock of the runtime and may use the whole API. One that a callback
        unregisters is not called any more; one that a callback registers takes part if its turn is yet to come: a
        post-reset callback in this reset, a pre-reset callback in the next.

        Returns:
            `OK`; `INVALID_ARGUMENT` for a device that does not exist; `UNSUPPORTED`, with a line in the log, while
            a reset of the same device is under way, on this thread (in a callback) or on another.

        Raises:
            BaseException: what a callback or the reset itself raised. All other callbacks and the reset have been
                done even so, and the next reset is not affected. The first exception is raised, but KeyboardInterrupt
                and SystemExit come before others; the rest goes to the log.
        """
        device_id = _existing(dev_id)
        return Status.INVALID_ARGUMENT if device_id is None else reset.run(device_id)

    @exact("11", "dev_ctrl::HalDevice::RegisterPreResetCallback")
    def register_pre_reset_callback(self, dev_id: int, fn: Callable[[int], object]) -> reset.CallbackHandle:
        """Calls `fn(device_id)` before every reset of the device.

        Returns:
            A handle for `unregister_reset_callback`. For a device that does not exist it stands for nothing: the log
            says so, and unregistering it gives `INVALID_ARGUMENT`.

        Raises:
            TypeError: `fn` is not callable.
        """
        return _register(dev_id, reset.Phase.PRE, fn)

    @exact("11", "dev_ctrl::HalDevice::RegisterPostResetCallback")
    def register_post_reset_callback(self, dev_id: int, fn: Callable[[int], object]) -> reset.CallbackHandle:
        """Calls `fn(device_id)` after every reset of the device; otherwise as `register_pre_reset_callback`."""
        return _register(dev_id, reset.Phase.POST, fn)

    @exact("11", "dev_ctrl::HalDevice::UnregisterResetCallback")
    def unregister_reset_callback(self, handle: reset.CallbackHandle) -> Status:
        """Forgets a callback.

        Returns:
            `OK`; `INVALID_ARGUMENT` for anything that is not a registered handle, a handle unregistered before
            included.
        """
        return Status.OK if reset.unregister(handle) else Status.INVALID_ARGUMENT

    def __repr__(self) -> str:
        return f"HalDevice({self._backend_name!r})"


@exact("11", "dev_ctrl::HalDeviceFactory")
class HalDeviceFactory:
    """Makes `HalDevice` objects."""

    @staticmethod
    @exact("11", "dev_ctrl::HalDeviceFactory::Create")
    def create(backend: str = "") -> HalDevice:
        """The devices of a backend.

        Args:
            backend: "Xh2HalBackend", "Xh2aHalBackend", "xh2", or "" for the default (`TCIM_BACKEND`).

        Raises:
            TypeError: `backend` is no str.
            UnsupportedError: a backend that is unknown or not emulated.
        """
        if not isinstance(backend, str):
            raise TypeError(f"backend={backend!r}: expected a str")
        try:
            return HalDevice(_core.resolve_backend(backend))
        except ArgumentError as error:
            raise UnsupportedError(str(error)) from None


def _existing(dev_id: int) -> int | None:
    """The id as an int, None if there is no such device."""
    try:
        if isinstance(dev_id, bool):
            raise TypeError
        number = operator.index(dev_id)
    except TypeError:
        raise TypeError(f"dev_id={dev_id!r}: expected an int") from None
    return number if number in _core.device_ids() else None


def _telemetry(dev_id: int) -> tuple[Status, _core.DeviceTelemetry | None]:
    device_id = _existing(dev_id)
    if device_id is None:
        return Status.INVALID_ARGUMENT, None
    try:
        return Status.OK, _core.device_telemetry(device_id)
    except DeviceError as error:
        return _does_not_answer(error), None


def _does_not_answer(error: DeviceError) -> Status:
    _core.log_warning(str(error))
    return Status.ERR_UNDEFINED


def _register(dev_id: int, phase: reset.Phase, fn: Callable[[int], object]) -> reset.CallbackHandle:
    if not callable(fn):
        raise TypeError(f"fn={fn!r}: expected a function that takes the device id")
    device_id = _existing(dev_id)
    if device_id is None:
        _core.log_warning(
            f"register_{phase.value}_reset_callback: device {dev_id} does not exist; nothing is registered"
        )
        return reset.CallbackHandle(dev_id, phase, fn)
    return reset.register(device_id, phase, fn)
