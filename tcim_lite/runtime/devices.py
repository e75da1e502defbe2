"""Which devices there are, and which version this is."""

from __future__ import annotations

from tcim_lite import _core
from tcim_lite.errors import TcimError
from tcim_lite.marks import chosen, exact
from tcim_lite.runtime.arguments import text

__all__ = ["get_device_num", "get_version"]


@exact("1.2", "GetVersion")
def get_version() -> str:
    """The version (C-19).

    Returns:
        Two lines: the emulated API version, `v1.4.0` or that of `TCIM_LITE_EMULATE`, and the emulator's own.

    Raises:
        ArgumentError: `TCIM_LITE_EMULATE` is not a version that is emulated.
    """
    return _core.version()


@chosen("1.2", "counts logical devices: the profile, TCIM_LITE_DEVICE_NUM, else 1", "GetDeviceNum")
def get_device_num(backend_name: str = "") -> int:
    """The number of logical devices; starts nothing (C-20).

    They come from `HOUMO_VISIBLE_DEVICES`, else the profile `TCIM_LITE_DEVICES`, else `TCIM_LITE_DEVICE_NUM`, else 1.

    Args:
        backend_name: as for `DevManager`; "" is the default backend.

    Returns:
        The count; 0 for a backend that is not emulated.

    Raises:
        TcimError: one of those variables holds something unreadable.
    """
    try:
        _core.resolve_backend(text(backend_name, "backend_name"))
    except TcimError:
        return 0
    return _core.device_count()
