"""How fast a compiled package runs on this machine, and how near that is to what the machine can do.

`tcim-lite bench` prints it. Extra: not in the vendor's API.
"""

from .limits import MachineLimits, machine_name, measure_limits
from .measure import PackageSpeed, Timing, measure_package

__all__ = ["MachineLimits", "PackageSpeed", "Timing", "machine_name", "measure_limits", "measure_package"]
