"""How fast a compiled package runs on this machine, and how near that is to what the machine can do.

`tcim-lite bench` prints it. Extra: not in the vendor's API.
"""

from .device_time import ModelledTime, model_network, model_package
from .explain import explain
from .limits import MachineLimits, machine_name, measure_limits
from .measure import ROOFS, PackageSpeed, Timing, measure_package
from .network import NetworkSpeed, measure_network, network_file
from .profile import StepTime, Stops

__all__ = [
    "ROOFS",
    "MachineLimits",
    "ModelledTime",
    "NetworkSpeed",
    "PackageSpeed",
    "StepTime",
    "Stops",
    "Timing",
    "explain",
    "machine_name",
    "measure_limits",
    "measure_network",
    "measure_package",
    "model_network",
    "model_package",
    "network_file",
]
