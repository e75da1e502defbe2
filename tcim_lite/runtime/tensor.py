"""Tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tcim_lite import _core
from tcim_lite.errors import ShapeError
from tcim_lite.marks import chosen, exact, extension
from tcim_lite.runtime.arguments import checked, flag, integers
from tcim_lite.runtime.arrays import as_array, export_dlpack, import_dlpack
from tcim_lite.runtime.tensor_info import DTYPES, Device, TensorInfo, dtype_name

__all__ = ["Tensor", "from_dlpack"]


@chosen("9", "new memory is zeros; the card's holds anything", "Tensor")
class Tensor:
    """Memory on the host or a device. Views and aliases share it and keep it alive (C-22).

    Every method raises StateError if the tensor, or the one it writes to, has no memory (an unbound dummy).
    """

    __slots__ = ("_core",)

    def __init__(self, info: TensorInfo, data: Any = None) -> None:
        """A new tensor.

        Args:
            info: dtype, shape and layout.
            data: None for zeroed storage where the info lives; else anything that `Module.set_input` takes from the
                host, with as many elements, which is copied into a host tensor and
                converted as there.

        Raises:
            ShapeError: the element counts differ.
            ArgumentError: a value does not fit the dtype.
            DeviceError: no memory left.
        """
        checked(info, TensorInfo, "Tensor", "give the info of an input or output, then the data: Tensor(info, data)")
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
    @exact("9", "Tensor::Info")
    def info(self) -> TensorInfo:
        """What the tensor looks like; valid without storage too (C-7)."""
        return TensorInfo._wrap(self._core.info)

    @property
    @chosen("9", "known from the adapter only: info.shape")
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._core.info.shape

    @property
    @chosen("9", "known from the adapter only: info.dtype")
    def dtype(self) -> type[np.generic]:
        """A numpy scalar class."""
        return DTYPES[self._core.info.dtype]

    @property
    @chosen("9", "known from the adapter only")
    def device(self) -> Device:
        """Where the memory is."""
        return self.info.device

    @property
    @chosen("9", "known from the adapter only")
    def device_id(self) -> int:
        """The logical device, -1 for the host."""
        return self._core.info.device_id

    @property
    @chosen("9", "known from the adapter only")
    def mem_size(self) -> int:
        """Bytes of the elements."""
        return self._core.info.mem_size

    @chosen("9", "no later run changes the array; works on device tensors")
    def numpy(self) -> NDArray[Any]:
        """The values as an array of the tensor's dtype and shape; no later run changes it (C-11).

        For an image the shape is [batch, bytes]: all rows of Y, then U and V interleaved.

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

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """What `from_dlpack` of numpy, torch and others calls; arguments as the array API standard defines them.

        The capsule shares a host tensor's memory and keeps it alive, as `numpy()` does. A device tensor is exported as
        a host copy, where the caller asks for one: `numpy.from_dlpack(tensor, device="cpu")`.

        Extra: not in the vendor's Python API.

        Raises:
            BufferError: memory that cannot be shared: a device tensor's without `dl_device=(1, 0)`, or another device.
            StateError: the tensor has no memory.
        """
        device_id = self._core.info.device_id
        return export_dlpack(
            self.numpy, device_id, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device: (1, 0) is the host, (12, id) a device, an "extension device" there."""
        device_id = self._core.info.device_id
        return (1, 0) if device_id < 0 else (12, device_id)

    @exact("9", "Tensor::ToHost")
    def to_host(self, to_contiguous: bool = False) -> Tensor:
        """A host tensor: a new one from a device; itself on the host, unless strided and `to_contiguous` is set.

        Raises:
            StateError: the tensor has no memory.
        """
        core = self._core.to_host(flag(to_contiguous, "to_host: to_contiguous"))
        return self if core.is_same(self._core) else self._wrap(core)

    @exact("9", "Tensor::AsType")
    def astype(self, np_type: Any) -> Tensor:
        """A copy in the same place, converted by the rules of `Module.set_input`.

        Raises:
            ArgumentError: a dtype the runtime does not have, or a value that does not fit it.
            DeviceError: no memory left.
        """
        return self._wrap(self._core.astype(dtype_name(np_type)))

    cast = astype

    @exact("9", "Tensor::CastTo")
    def cast_to(self, dst: Tensor) -> None:
        """Converts into `dst`, which has as many elements, by the rules of `Module.set_input`.

        Raises:
            ShapeError: the element counts differ.
            ArgumentError: a value does not fit.
        """
        self._core.cast_to(checked(dst, Tensor, "cast_to", "astype(dtype).numpy() makes an array")._core)

    @exact("9", "Tensor::CopyTo")
    def copy_to(self, dst: Tensor) -> None:
        """Copies this tensor into `dst`: any pair of places, any strides, equal dtypes.

        Raises:
            ShapeError: dtypes or element counts differ.
        """
        self._core.copy_to(checked(dst, Tensor, "copy_to", "numpy() makes an array")._core)

    @exact("9", "Tensor::SelectROI")
    def select_roi(self, start: Sequence[int], shape: Sequence[int]) -> Tensor:
        """A rectangular view that shares memory; of a tensor of images, only whole images.

        Args:
            start: first index per axis.
            shape: extent per axis.

        Raises:
            ArgumentError: a part of an image.
            ShapeError: the region is not inside the tensor.
        """
        return self._wrap(self._core.select_roi(integers(start, "start"), integers(shape, "shape")))

    @chosen("9", "a view of batches that follow each other, with all axes")
    def select_batch(self, batches: Sequence[int]) -> Tensor:
        """The given indices of the first axis, one after the other, as a view that shares memory.

        Args:
            batches: indices; each is one more than the one before.

        Raises:
            ShapeError: no index, one outside the tensor, or indices that do not follow each other.
        """
        wanted, (count, *rest) = integers(batches, "batches"), self.shape
        if not wanted or any(not 0 <= batch < count for batch in wanted):
            raise ShapeError(f"select_batch: batches {wanted}, expected some of 0 to {count - 1} of shape {self.shape}")
        if wanted != list(range(wanted[0], wanted[0] + len(wanted))):
            raise ShapeError(
                f"select_batch: batches {wanted} do not follow each other, so no view has them; select them one by one"
            )
        return self.select_roi([wanted[0], *(0 for _ in rest)], [len(wanted), *rest])

    @exact("9", "Tensor::Clone")
    def clone(self, auto_copy: bool = True) -> Tensor:
        """A copy in the same place; without `auto_copy` its contents are unspecified (zero here).

        Raises:
            DeviceError: no memory left.
        """
        return self._wrap(self._core.clone(flag(auto_copy, "clone: auto_copy")))

    @exact("9")
    def set_zero(self) -> None:
        """Fills the tensor with 0."""
        self._core.set_zero()

    def __copy__(self) -> Tensor:
        return Tensor._wrap(self._core)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Tensor cannot be pickled or copied deeply; send tensor.numpy() to other processes, and clone() copies"
        )

    def __repr__(self) -> str:
        info = self._core.info
        place = "host" if info.device_id < 0 else f"device {info.device_id}"
        storage = "" if self._core.has_storage else ", no storage"
        return f"Tensor(shape={info.shape}, dtype={info.dtype}, {place}{storage})"


@extension("build a Tensor(info, array) instead")
def from_dlpack(source: Any) -> Tensor:
    """A host tensor with the values of another library's array; a copy, so neither follows the other.

    `Module.set_input` and `Tensor(info, data)` take such arrays as they are.

    Args:
        source: a host array with `__dlpack__` (torch, jax, numpy), of DLPack 0.x or 1.x, any strides, read-only or
            not; or a capsule that `__dlpack__` gave, which can be used once. bfloat16 becomes float32, exactly.

    Raises:
        ArgumentError: memory that is not the host's, a dtype no tensor has, or a capsule that was used or is damaged.
        ShapeError: the array has no elements.
        TypeError: `source` has no `__dlpack__`.
        UnsupportedError: a DLPack version after 1.x.
    """
    array = import_dlpack(source)
    return Tensor(TensorInfo(array.shape, array.dtype), array)
