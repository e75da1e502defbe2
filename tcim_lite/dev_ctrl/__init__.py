"""The vendor's device control: clocks, telemetry and reset of logical devices.

`tcim_lite.pydev_ctrl` is the same module under the name of the vendor's documentation.
"""

from tcim_lite.dev_ctrl.hal_device import DvfsMode, HalDevice, HalDeviceFactory, MemInfo
from tcim_lite.errors import Status

__all__ = ["DvfsMode", "HalDevice", "HalDeviceFactory", "MemInfo", "Status"]
