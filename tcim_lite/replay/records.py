"""Checked access to the records of a recording (docs/recording.md, section 4): a wrong type is a RecordingError."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .container import Recording, RecordingError

__all__ = ["ArrayFacts", "TensorFacts", "array_of", "field", "memory_shape", "number", "tensor_of", "text", "values_of"]

DTYPES = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "float16",
    "float32",
    "int64",
    "uint64",
    "float64",
    "bool",
)
_MAX_AXES, _MAX_EXTENT = 64, 1 << 40


@dataclass(frozen=True)
class TensorFacts:
    """Memory and what it looks like: two facts that are equal name the same tensor.

    Attributes:
        id: of the memory; 0 for an unbound dummy.
        offset: bytes into it.
        dtype: numpy's name.
        shape: the extents.
        device: logical device, -1 for the host.
    """

    id: int
    offset: int
    dtype: str
    shape: tuple[int, ...]
    device: int


@dataclass(frozen=True)
class ArrayFacts:
    """Values: their dtype and shape, the fingerprint of the bytes, and the value of a single integer."""

    dtype: str
    shape: tuple[int, ...]
    hash: int
    value: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def field(record: dict[str, Any], key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
    """The member of a record, or `default`; RecordingError for another type."""
    value = record.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise RecordingError(f"a record whose {key!r} is {value!r:.80}, expected {kind}: {str(record)[:200]}")
    return value


def text(record: dict[str, Any], key: str, default: str = "") -> str:
    """A member that is text."""
    return str(field(record, key, str, default))


def number(record: dict[str, Any], key: str, default: int = 0) -> int:
    """A member that is a whole number of 63 bits."""
    value = int(field(record, key, int, default))
    if not -(1 << 63) <= value < 1 << 63:
        raise RecordingError(f"a record whose {key!r} does not fit 64 bits: {str(record)[:200]}")
    return value


def numbers_of(record: dict[str, Any], key: str) -> list[int]:
    """A member that is a list of whole numbers of 63 bits: what a program passed, which the call may have refused."""
    values = field(record, key, list, [])
    if not all(type(value) is int and -(1 << 63) <= value < 1 << 63 for value in values):
        raise RecordingError(f"a record whose {key!r} is {values!r:.80}, expected numbers: {str(record)[:200]}")
    return values


def shape_of(record: dict[str, Any], key: str = "shape") -> tuple[int, ...]:
    """A member that is a list of extents."""
    shape = field(record, key, list, [])
    if len(shape) > _MAX_AXES or not all(type(extent) is int and 0 <= extent <= _MAX_EXTENT for extent in shape):
        raise RecordingError(f"a record with the shape {shape!r:.80}: {str(record)[:200]}")
    if math.prod(shape) > _MAX_EXTENT:
        raise RecordingError(f"a record with the shape {shape!r:.80}: too many elements")
    return tuple(shape)


def memory_shape(info: Any) -> tuple[int, ...]:
    """What a recording has for a TensorInfo: of an image [batch, bytes], which a replay can make memory for."""
    shape = tuple(int(extent) for extent in info.shape)
    if getattr(getattr(info, "format", None), "name", "ND") == "ND":
        return shape
    return shape[0], int(info.mem_size) // shape[0]


def dtype_of(record: dict[str, Any], key: str = "dtype") -> str:
    """A member that names a dtype."""
    dtype = text(record, key)
    if dtype not in DTYPES:
        raise RecordingError(f"a record with the dtype {dtype!r:.80}; expected one of {', '.join(DTYPES)}")
    return dtype


def tensor_of(record: dict[str, Any], key: str) -> TensorFacts | None:
    """The tensor that a member names."""
    facts = field(record, key, dict)
    if facts is None:
        return None
    device = number(facts, "device", -1)
    return TensorFacts(number(facts, "id"), number(facts, "offset"), dtype_of(facts), shape_of(facts), device)


def array_of(record: dict[str, Any], key: str) -> ArrayFacts | None:
    """The values that a member tells of."""
    facts = field(record, key, dict)
    if facts is None:
        return None
    try:
        hashed = int(text(facts, "hash"), 16)
    except ValueError:
        raise RecordingError(f"a record whose hash is no hexadecimal number: {str(record)[:200]}") from None
    return ArrayFacts(dtype_of(facts), shape_of(facts), hashed, field(facts, "value", int))


def values_of(recording: Recording, facts: ArrayFacts) -> NDArray[Any] | None:
    """The values, read-only; None if they were not recorded.

    Raises:
        RecordingError: damage.
    """
    if recording.has_data(facts.hash):
        content = recording.data(facts.hash)
        if len(content) != facts.nbytes:
            raise RecordingError(
                f"{recording.path}: {facts.dtype} {list(facts.shape)} needs {facts.nbytes} bytes, "
                f"stored are {len(content)}"
            )
        return np.frombuffer(content, np.dtype(facts.dtype).newbyteorder("<")).reshape(facts.shape)
    if facts.value is not None and math.prod(facts.shape) == 1:
        try:
            return np.full(facts.shape, facts.value, facts.dtype)
        except (OverflowError, ValueError) as error:
            raise RecordingError(
                f"{recording.path}: the value {facts.value!r:.40} is no {facts.dtype}: {error}"
            ) from None
    return None
