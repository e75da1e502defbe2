"""The chip's clock: runs take the time that the chip is modelled to take ([clock](../clock.md)).

Extra: not in the vendor's API. `TCIM_LITE_CLOCK=virtual` or `realtime` does the same from outside, for C++ programs
too. Device time is modelled, never measured.
"""

from __future__ import annotations

import time

from tcim_lite import _core, layers

__all__ = ["Clock", "device_seconds", "mode", "now_ns", "realtime", "sleep", "virtual"]


class Clock:
    """A clock that is on until `stop`, or until the end of a `with` block."""

    def __init__(self, mode: str) -> None:
        layers.enable("clock", mode=mode)

    def stop(self) -> None:
        """Ends it; runs take their own time again."""
        layers.disable("clock")

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def virtual() -> Clock:
    """Starts a virtual clock at 0: waits take modelled time in it and nothing in between takes any.

    Runs are executed by `run` itself, so the same calls of one thread give the same times to the bit, on any machine.

    Raises:
        ArgumentError: `TCIM_LITE_CLOCK_PROFILE` names something that is no profile.
    """
    return Clock("virtual")


def realtime() -> Clock:
    """Lets runs and copies take at least as long as on the chip: where this machine is faster, it sleeps.

    Raises:
        ArgumentError: as of `virtual`.
    """
    return Clock("realtime")


def mode() -> str:
    """Returns "off", "virtual" or "realtime"; what `TCIM_LITE_CLOCK` says holds from the first call of the runtime."""
    layers.active()
    return _core.clock_mode()


def now_ns() -> int:
    """Returns the virtual clock: nanoseconds of the host since it was started.

    Raises:
        StateError: the clock is not virtual.
    """
    return _core.virtual_now_ns()


def sleep(seconds: float) -> None:
    """Sleeps: in the virtual clock, where there is one.

    Raises:
        ArgumentError: fewer than 0 seconds, or more than 1e9.
    """
    if mode() == "virtual":
        _core.pass_virtual_time(seconds)
    else:
        time.sleep(seconds)


def device_seconds(device_id: int = 0) -> float:
    """Returns for how many modelled seconds the device has run since the clock was started; 0 while it is off."""
    return _core.modelled_busy_ns(device_id) * 1e-9
