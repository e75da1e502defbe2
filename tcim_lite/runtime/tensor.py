"""TensorInfo and Tensor."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite import _core
from tcim_lite.errors import ArgumentError
from tcim_lite.runtime.arguments import checked, flag, integers, text

__all__ = ["DataFmt", "Device", "Tensor", "TensorInfo", "as_array"]

_DTYPES: dict[str, type[np.generic]] = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "float16": np.float16,
    "float32": np.float32,
}


def _dtype_name(dtype: Any) -> str:
    """numpy's name of a runtime dtype; TypeError if it is no dtype, ArgumentError if it is another."""
    name = ""
    if dtype is not None:  # numpy would make it float64
        with contextlib.suppress(TypeError, ValueError):
            name = str(np.dtype(dtype).name)
    if not name:
        raise TypeError(f"dtype={dtype!r:.200}: expected a numpy type such as numpy.float16")
    if name not in _DTYPES:
        raise ArgumentError(f"a tensor cannot be {name}; expected {', '.join(_DTYPES)}")
    return name


class DataFmt(enum.IntEnum):
    """Layout of a tensor's content."""

    ND = 0
    YUV420SP = 1
    YUV422SP = 2
    YUV444SP = 3


class Device(enum.IntEnum):
    """Where memory is: the host (CPU) or a device (HDPL)."""

    CPU = 0
    HDPL = 1


def as_array(value: Any) -> NDArray[Any]:
    """What `numpy.asarray` makes of it (CPU torch tensors included), in native byte order."""
    try:
        array = np.asarray(value)
    except TypeError as error:  # a torch tensor of bfloat16 says only what it is
        raise TypeError(
            f"a {type(value).__name__} that numpy cannot read ({error}); expected integers, bool, float16, float32 or "
            "float64 on the host, so convert it before, for example with tensor.float()"
        ) from error
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class TensorInfo:
    """What a tensor looks like (spec section 8, C-14). Immutable."""

    __slots__ = ("_core",)

    def __init__(self, shape: Sequence[int], dtype: Any = np.float16, name: str = "") -> None:
        """Describes a dense host tensor; infos of a module's slots come from the module.

        Extra: not in the vendor's Python API.

        Args:
            shape: extents, each at least 1; () is a scalar.
            dtype: one of the eight numpy types of spec section 13.1.
            name: free text.

        Raises:
            ArgumentError: another dtype.
            ShapeError: an extent below 1.
            TypeError: an extent is no int.
        """
        self._core = _core.TensorInfo.make(_dtype_name(dtype), integers(shape, "shape"), name=text(name, "name"))

    @classmethod
    def _wrap(cls, core: _core.TensorInfo) -> TensorInfo:
        info = cls.__new__(cls)
        info._core = core
        return info

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._core.shape

    @property
    def dtype(self) -> type[np.generic]:
        """A numpy scalar class such as `numpy.float16`."""
        return _DTYPES[self._core.dtype]

    @property
    def format(self) -> DataFmt:
        """The layout; `.name` is "ND" for everything but images."""
        return DataFmt[self._core.format]

    @property
    def stride(self) -> tuple[int, ...]:
        """Strides in elements, one per axis."""
        return self._core.strides

    @property
    def mem_size(self) -> int:
        """Bytes of the elements."""
        return self._core.mem_size

    @property
    def device(self) -> Device:
        """Where the tensor lives."""
        return Device.CPU if self._core.device_id < 0 else Device.HDPL

    @property
    def device_id(self) -> int:
        """The logical device, -1 for the host. Extra: not in the vendor's Python API."""
        return self._core.device_id

    @property
    def name(self) -> str:
        """The compiled name of the slot, or ""."""
        return self._core.name

    def ascontiguous(self) -> TensorInfo:
        """A copy with dense strides (the host layout)."""
        return TensorInfo._wrap(self._core.ascontiguous())

    def astype(self, np_type: Any) -> TensorInfo:
        """A copy with another dtype.

        Raises:
            ArgumentError: a dtype the runtime does not have.
        """
        return TensorInfo._wrap(self._core.astype(_dtype_name(np_type)))

    def clone(self) -> TensorInfo:
        """A copy."""
        return TensorInfo._wrap(self._core)

    def is_match(self, other: TensorInfo) -> bool:
        """Whether shape, dtype and format are equal."""
        return self._core.is_match(checked(other, TensorInfo)._core)

    def __repr__(self) -> str:
        core = self._core
        return f"TensorInfo(shape={core.shape}, dtype={core.dtype}, format={core.format}, device_id={core.device_id})"


class Tensor:
    """Memory on the host or a device (spec section 9). Views and aliases share it and keep it alive (C-22)."""

    __slots__ = ("_core",)

    def __init__(self, info: TensorInfo, data: Any = None) -> None:
        """A new tensor.

        Args:
            info: dtype, shape and layout.
            data: None for zeroed storage where the info lives; else an array with as many elements, which is copied and
                converted (spec section 13.2) into a host tensor.

        Raises:
            ShapeError: the element counts differ.
            ArgumentError: a value does not fit the dtype.
            DeviceError: no memory left.
        """
        checked(info, TensorInfo)
        if data is None:
            self._core = _core.Tensor.allocate(info._core)
        else:
            self._core = _core.Tensor.from_array(info._core, as_array(data))

    @classmethod
    def _wrap(cls, core: _core.Tensor) -> Tensor:
        tensor = cls.__new__(cls)
        tensor._core = core
        return tensor

    @property
    def info(self) -> TensorInfo:
        """What the tensor looks like; valid without storage too (C-7)."""
        return TensorInfo._wrap(self._core.info)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._core.info.shape

    @property
    def dtype(self) -> type[np.generic]:
        """A numpy scalar class."""
        return _DTYPES[self._core.info.dtype]

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self.info.device

    @property
    def device_id(self) -> int:
        """The logical device, -1 for the host. Extra: not in the vendor's Python API."""
        return self._core.info.device_id

    @property
    def mem_size(self) -> int:
        """Bytes of the elements."""
        return self._core.info.mem_size

    def numpy(self) -> NDArray[Any]:
        """The values as an array of the tensor's dtype and shape; no later run changes it (C-11).

        Raises:
            StateError: the tensor has no memory (an unbound dummy).
        """
        return self._core.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """What `numpy.asarray` calls; `dtype` and `copy` as numpy defines them."""
        if copy is False and self._core.info.device_id >= 0:
            raise ValueError("a device tensor cannot become an array without a copy; leave out copy=False")
        array = self.numpy()
        if dtype is not None and array.dtype != np.dtype(dtype):
            if copy is False:
                raise ValueError(f"a {array.dtype} tensor cannot become {np.dtype(dtype)} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def to_host(self, to_contiguous: bool = False) -> Tensor:
        """A host tensor: a new one from a device; itself on the host, unless strided and `to_contiguous` is set.

        Raises:
            StateError: the tensor has no memory.
        """
        core = self._core.to_host(flag(to_contiguous, "to_host: to_contiguous"))
        return self if core.is_same(self._core) else self._wrap(core)

    def astype(self, np_type: Any) -> Tensor:
        """A converted copy in the same place (rules of spec section 13.2).

        Raises:
            ArgumentError: a dtype the runtime does not have, or a value that does not fit it.
        """
        return self._wrap(self._core.astype(_dtype_name(np_type)))

    cast = astype

    def cast_to(self, dst: Tensor) -> None:
        """Converts into `dst`, which has as many elements.

        Raises:
            ShapeError: the element counts differ.
            ArgumentError: a value does not fit.
        """
        self._core.cast_to(checked(dst, Tensor)._core)

    def copy_to(self, dst: Tensor) -> None:
        """Copies this tensor into `dst`: any pair of places, any strides, equal dtypes.

        Raises:
            ShapeError: dtypes or element counts differ.
        """
        self._core.copy_to(checked(dst, Tensor)._core)

    def select_roi(self, start: Sequence[int], shape: Sequence[int]) -> Tensor:
        """A rectangular view that shares memory.

        Args:
            start: first index per axis.
            shape: extent per axis.

        Raises:
            ShapeError: the region is not inside the tensor.
        """
        return self._wrap(self._core.select_roi(integers(start, "start"), integers(shape, "shape")))

    def clone(self, auto_copy: bool = True) -> Tensor:
        """New memory in the same place; without `auto_copy` its contents are unspecified (zero here)."""
        return self._wrap(self._core.clone(flag(auto_copy, "clone: auto_copy")))

    def set_zero(self) -> None:
        """Fills the tensor with 0."""
        self._core.set_zero()

    def __repr__(self) -> str:
        info = self._core.info
        place = "host" if info.device_id < 0 else f"device {info.device_id}"
        storage = "" if self._core.has_storage else ", no storage"
        return f"Tensor(shape={info.shape}, dtype={info.dtype}, {place}{storage})"
