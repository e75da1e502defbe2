"""The vendor's inference API: load a compiled model, give it inputs, run it, read its outputs."""

from tcim_lite.errors import (
    ArgumentError,
    DeviceError,
    HmmFormatError,
    ShapeError,
    StateError,
    Status,
    TcimError,
    UnknownNameError,
    UnsupportedError,
)
from tcim_lite.runtime.devices import get_device_num, get_version
from tcim_lite.runtime.loading import load, load_model_info
from tcim_lite.runtime.managers import DevManager, WeightManager
from tcim_lite.runtime.module import Module
from tcim_lite.runtime.options import Option, RunOption
from tcim_lite.runtime.stream import Stream
from tcim_lite.runtime.tensor import Tensor, from_dlpack
from tcim_lite.runtime.tensor_info import DataFmt, Device, TensorInfo

__all__ = [
    "ArgumentError",
    "DataFmt",
    "DevManager",
    "Device",
    "DeviceError",
    "HmmFormatError",
    "Module",
    "Option",
    "RunOption",
    "ShapeError",
    "StateError",
    "Status",
    "Stream",
    "TcimError",
    "Tensor",
    "TensorInfo",
    "UnknownNameError",
    "UnsupportedError",
    "WeightManager",
    "from_dlpack",
    "get_device_num",
    "get_version",
    "load",
    "load_model_info",
]
