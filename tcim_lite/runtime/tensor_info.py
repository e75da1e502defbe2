"""TensorInfo: what a tensor looks like."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tcim_lite import _core
from tcim_lite.errors import ArgumentError, NamedIntEnum
from tcim_lite.marks import chosen, exact, extension
from tcim_lite.runtime.arguments import checked, integers, text

__all__ = ["DTYPES", "DataFmt", "Device", "TensorInfo", "dtype_name"]

DTYPES: dict[str, type[np.generic]] = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "float16": np.float16,
    "float32": np.float32,
}


def dtype_name(dtype: Any) -> str:
    """numpy's name of a runtime dtype; TypeError if it is no dtype, ArgumentError if it is another."""
    name = ""
    # numpy would make None float64, and before 2.3 it took the dtype of whatever has one, such as a tensor.
    if dtype is not None and (isinstance(dtype, (type, np.dtype)) or not hasattr(dtype, "dtype")):
        with contextlib.suppress(TypeError, ValueError):
            name = str(np.dtype(dtype).name)
    if not name:
        raise TypeError(f"dtype={dtype!r:.200}: expected a numpy type such as numpy.float16")
    if name not in DTYPES:
        raise ArgumentError(f"a tensor cannot be {name}; expected {', '.join(DTYPES)}")
    return name


@exact("12.2", "DataFmt")
class DataFmt(NamedIntEnum):
    """Layout of a tensor's content."""

    ND = 0
    YUV420SP = 1
    YUV422SP = 2
    YUV444SP = 3


@exact("12.2", "Device")
class Device(NamedIntEnum):
    """Where memory is: the host (CPU) or a device (HDPL)."""

    CPU = 0
    HDPL = 1


@extension("take the info of a module, and astype or ascontiguous of it")
class TensorInfo:
    """What a tensor looks like (C-14). Immutable."""

    __slots__ = ("_core",)

    def __init__(self, shape: Sequence[int], dtype: Any = np.float16, name: str = "") -> None:
        """Describes a dense host tensor; a module gives the infos of its inputs and outputs.

        Extra: not in the vendor's Python API.

        Args:
            shape: extents, each at least 1; () is a scalar.
            dtype: a numpy type: int8, uint8, int16, uint16, int32, uint32, float16 or float32.
            name: free text.

        Raises:
            ArgumentError: another dtype.
            ShapeError: an extent below 1.
            TypeError: an extent is no int.
        """
        self._core = _core.TensorInfo.make(dtype_name(dtype), integers(shape, "shape"), name=text(name, "name"))

    @classmethod
    def _wrap(cls, core: _core.TensorInfo) -> TensorInfo:
        info = cls.__new__(cls)
        info._core = core
        return info

    @property
    @exact("8", "TensorInfo::Shape")
    def shape(self) -> tuple[int, ...]:
        """The extents; of an image [batch, 3, height, width], whose product is not its number of bytes."""
        return self._core.shape

    @property
    @exact("8", "TensorInfo::DataType")
    def dtype(self) -> type[np.generic]:
        """A numpy scalar class such as `numpy.float16`."""
        return DTYPES[self._core.dtype]

    @property
    @exact("8", "TensorInfo::Format")
    def format(self) -> DataFmt:
        """The layout; `.name` is "ND" for everything but images."""
        return DataFmt[self._core.format]

    @property
    @chosen("8", "known from the adapter only")
    def stride(self) -> tuple[int, ...]:
        """Strides in elements, one per axis; of an image those of Y, those of U and V, and the offset of U and V."""
        return self._core.strides

    @property
    @chosen("8", "known from the adapter only")
    def mem_size(self) -> int:
        """Bytes of the elements, of an image by its format."""
        return self._core.mem_size

    @property
    @chosen("8", "known from the adapter only")
    def device(self) -> Device:
        """Where the tensor lives."""
        return Device.CPU if self._core.device_id < 0 else Device.HDPL

    @property
    @extension("the program knows where it loaded the module")
    def device_id(self) -> int:
        """The logical device, -1 for the host."""
        return self._core.device_id

    @property
    @chosen("8", "known from the adapter only")
    def name(self) -> str:
        """The compiled name of the input or output, or ""."""
        return self._core.name

    @chosen("13.4", "layouts are dense everywhere, so nothing changes", "TensorInfo::AsContiguous")
    def ascontiguous(self) -> TensorInfo:
        """A copy with dense strides (the host layout)."""
        return TensorInfo._wrap(self._core.ascontiguous())

    @exact("8", "TensorInfo::AsType")
    def astype(self, np_type: Any) -> TensorInfo:
        """A copy with another dtype.

        Raises:
            ArgumentError: a dtype the runtime does not have.
        """
        return TensorInfo._wrap(self._core.astype(dtype_name(np_type)))

    @chosen("8", "known from the adapter only")
    def clone(self) -> TensorInfo:
        """A copy."""
        return TensorInfo._wrap(self._core)

    @chosen("8", "known from the adapter only")
    def is_match(self, other: TensorInfo) -> bool:
        """Whether shape, dtype and format are equal."""
        return self._core.is_match(checked(other, TensorInfo, "is_match")._core)

    def __copy__(self) -> TensorInfo:
        return TensorInfo._wrap(self._core)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TensorInfo cannot be pickled or copied deeply; send its shape and dtype to other processes")

    def __repr__(self) -> str:
        core = self._core
        return f"TensorInfo(shape={core.shape}, dtype={core.dtype}, format={core.format}, device_id={core.device_id})"
