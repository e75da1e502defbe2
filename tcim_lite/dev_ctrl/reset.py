"""Reset callbacks. Every step on the shared dicts is atomic in Python, so there is no lock for callbacks to meet."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable

from tcim_lite import _core
from tcim_lite.errors import Status

__all__ = ["CallbackHandle", "Phase", "register", "run", "unregister"]


class Phase(enum.Enum):
    """When a callback runs."""

    PRE = "pre"
    POST = "post"


class CallbackHandle:
    """A registered callback; compared by identity."""

    __slots__ = ("device_id", "fn", "phase")

    def __init__(self, device_id: int, phase: Phase, fn: Callable[[int], object]) -> None:
        self.device_id = device_id
        self.phase = phase
        self.fn = fn

    def __repr__(self) -> str:
        return f"<{self.phase.value}-reset callback of device {self.device_id}: {self.fn!r}>"


_registered: dict[CallbackHandle, None] = {}  # in registration order
_resetting: dict[int, object] = {}
os.register_at_fork(after_in_child=_resetting.clear)  # the child of a callback may reset


def register(device_id: int, phase: Phase, fn: Callable[[int], object]) -> CallbackHandle:
    """Adds a callback of a device that exists."""
    handle = CallbackHandle(device_id, phase, fn)
    _registered[handle] = None
    return handle


def unregister(handle: CallbackHandle) -> bool:
    """Whether `handle` was registered; it is no longer."""
    return isinstance(handle, CallbackHandle) and _registered.pop(handle, handle) is None


def run(device_id: int) -> Status:
    """Resets a device that exists; what `HalDevice.ipu_reset` says."""
    turn = object()
    errors: list[BaseException] = []
    try:
        if _resetting.setdefault(device_id, turn) is not turn:
            _core.log_warning(f"ipu_reset: a reset of device {device_id} is under way; this one is not done")
            return Status.UNSUPPORTED
        _call(device_id, Phase.PRE, errors)
        _attempt(_core.reset_device, device_id, errors)
        _call(device_id, Phase.POST, errors)
    finally:
        if _resetting.get(device_id) is turn:
            del _resetting[device_id]
    if not errors:
        return Status.OK
    # Ctrl-C and sys.exit end the program, whatever failed before them.
    first = next((error for error in errors if not isinstance(error, Exception)), errors[0])
    for error in errors:
        if error is not first:
            _core.log_warning(f"ipu_reset: a further callback failed: {_text(error)}")
    # The frames of its traceback must not hold the exception: what a callback's frame holds would stay alive with it.
    errors.clear()
    del error
    try:
        raise first
    finally:
        del first


def _call(device_id: int, phase: Phase, errors: list[BaseException]) -> None:
    for handle in list(_registered):
        if handle.device_id == device_id and handle.phase is phase and handle in _registered:
            _attempt(handle.fn, device_id, errors)


def _attempt(fn: Callable[[int], object], device_id: int, errors: list[BaseException]) -> None:
    try:
        fn(device_id)
    except BaseException as error:
        errors.append(error)


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its __str__ fails
        return type(error).__name__
