"""Arrays of other libraries, and ours for them: numpy's protocol, DLPack, bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite import _core
from tcim_lite.errors import ArgumentError

__all__ = ["as_array", "export_dlpack", "import_dlpack"]

_HOST = (1, 0)  # as DLPack counts devices
_NUMPY_EXPORTS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def as_array(value: Any) -> NDArray[Any]:
    """What `numpy.asarray` makes of it, else what DLPack does. Native byte order; bfloat16 becomes float32, exactly."""
    array: NDArray[Any] | None = None
    problem: Exception | None = None
    try:
        array = np.asarray(value)
    except TypeError as error:  # of torch: a bfloat16 tensor, or one on a GPU
        problem = error
    except RuntimeError as error:  # of torch: a tensor that requires grad
        raise ArgumentError(f"a {type(value).__name__} that numpy cannot read ({error})") from error
    except ValueError as error:
        if not isinstance(value, (list, tuple)):
            raise
        raise ArgumentError(
            f"a {type(value).__name__} that makes no array ({error}); expected rows of equal length"
        ) from error
    # numpy makes an array of one Python object of what it does not know.
    unknown = array is None or (array.dtype.kind == "O" and array is not value)
    if unknown and hasattr(value, "__dlpack__"):
        try:
            return import_dlpack(value)
        except BufferError as error:  # of torch: a tensor that is sparse, quantised or without memory
            array, problem = None, error
    if array is None:
        raise TypeError(
            f"a {type(value).__name__} that numpy cannot read ({problem}); expected integers, bool, bfloat16, float16, "
            "float32 or float64 on the host, so convert it before, for example with tensor.float()"
        ) from problem
    if array.dtype.kind == "O" and array is not value and array.ndim == 0:
        if isinstance(value, int):
            raise ArgumentError(f"an integer of {value.bit_length()} bits; expected one of at most 64")
        raise ArgumentError(f"a {type(value).__name__} is no array; expected one of numpy, or what numpy.asarray takes")
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":  # of ml_dtypes; a name takes a microsecond
        return _widen(array.view(np.uint16))
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def import_dlpack(source: Any) -> NDArray[Any]:
    """A read-only array over the source's memory, which it keeps; errors as `runtime.from_dlpack`."""
    if hasattr(source, "__dlpack__"):
        try:
            capsule = source.__dlpack__(max_version=(1, 0))
        except TypeError:  # an exporter of DLPack 0.x
            capsule = source.__dlpack__()
    elif type(source).__name__ == "PyCapsule":
        capsule = source
    else:
        raise TypeError(
            f"from_dlpack: expected an array with __dlpack__, got {type(source).__name__}; "
            "Tensor(info, data) takes anything that numpy.asarray does"
        )
    array, dtype = _core.dlpack_array(capsule)
    return _widen(array) if dtype == "bfloat16" else array


def export_dlpack(
    values: Callable[[], NDArray[Any]],
    device_id: int,
    *,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """`Tensor.__dlpack__` of a tensor on `device_id` (-1: the host) whose array `values` makes."""
    if dl_device is not None and tuple(dl_device) != _HOST:
        raise BufferError(f"dl_device={dl_device!r:.200}: a tensor is exported to the host only, (1, 0) in DLPack")
    if device_id >= 0 and (dl_device is None or copy is False):
        raise BufferError(
            f"the tensor is on device {device_id}, whose memory no other library can use; "
            "export a copy: from_dlpack(tensor.to_host())"
        )
    array = values()
    if _NUMPY_EXPORTS_VERSIONS:
        return array.__dlpack__(stream=stream, max_version=max_version, copy=copy)
    return (array.copy() if copy else array).__dlpack__(stream=stream)


def _widen(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat16 is the upper half of float32."""
    return np.asarray(bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
