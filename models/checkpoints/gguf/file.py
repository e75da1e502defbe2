"""The GGUF container: metadata and a table of tensors. Counts and lengths are checked before anything is read by them.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. What the bytes of a quantised tensor mean is left to
the package `gguf`.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError, need_extra

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_INSTEAD = (
    "write it in another one with `llama-quantize --allow-requantize IN OUT F16`, or compile the Hugging Face folder"
)
# Scalar types of metadata by their number.
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
# Far above real files; a damaged count should not take minutes or all memory.
_MOST_KEYS, _MOST_TENSORS, _MOST_ITEMS, _MOST_TEXT, _MOST_DIMS = 1 << 16, 1 << 16, 1 << 22, 1 << 24, 4


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies.

    Attributes:
        shape: Outermost axis first, as in numpy.
        type: Number of its ggml type.
        type_name: Of the type, such as Q4_K.
        offset: From the start of the file.
        row_bytes: Of what lies along the last axis.
    """

    shape: tuple[int, ...]
    type: int
    type_name: str
    offset: int
    row_bytes: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes


class GgufFile:
    """One GGUF file.

    Attributes:
        path: Of the file.
        metadata: Its keys: bool, int, float, str, or lists of them; arrays of numbers are numpy's.
        tensors: By name.
    """

    def __init__(self, path: Path) -> None:
        """Reads metadata and tensor table.

        Raises:
            CheckpointError: No GGUF file that can be read.
            CompileError: The package `gguf` is not installed.
        """
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, GgufTensor] = {}
        if not path.is_file():  # reading a FIFO or a device might not end
            raise CheckpointError(f"{path} is not a regular file; expected a GGUF file")
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                _Parser(self, view).parse()
        except (OSError, ValueError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{path} cannot be read as a GGUF file: {error}") from error

    def rows(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Returns rows of a tensor in fp32, [stop - start, last axis]; of a vector its one row.

        Raises:
            CheckpointError: Its type has no known meaning, or the file is shorter than it was.
        """
        tensor = self.tensors[name]
        quants, kinds = _import_gguf()
        count = (stop - start) * tensor.row_bytes
        data = np.fromfile(self.path, np.uint8, count, offset=tensor.offset + start * tensor.row_bytes)
        if data.size != count:
            raise CheckpointError(f"{self.path}: tensor {name!r} ends after {data.size} of {count} bytes")
        try:
            with np.errstate(all="ignore"):
                rows = quants.dequantize(data.reshape(stop - start, -1), kinds(tensor.type))
        except NotImplementedError:
            raise CheckpointError(
                f"{self.path}: tensor {name!r} has type {tensor.type_name}, which the package gguf does not dequantise"
                f"; {_INSTEAD}"
            ) from None
        return np.ascontiguousarray(rows, np.float32).reshape(stop - start, tensor.shape[-1])


class _Parser:
    def __init__(self, target: GgufFile, view: mmap.mmap) -> None:
        self._file, self._view, self._at = target, view, 0

    def parse(self) -> None:
        if self._take(4, "the magic") != MAGIC:
            raise self._error("it does not begin with 'GGUF'")
        version = self._unpack("<I", "the version")
        if version not in _VERSIONS:
            big = version != 0 and version & 0xFFFF == 0
            raise self._error(
                "it is big-endian, expected little-endian"
                if big
                else f"it has version {version}, expected {' or '.join(map(str, _VERSIONS))}"
            )
        tensors = self._count("<Q", _MOST_TENSORS, 24, "tensors")
        keys = self._count("<Q", _MOST_KEYS, 13, "keys")
        for _ in range(keys):
            key = self._text("a key")
            if key in self._file.metadata:
                raise self._error(f"it has the key {key!r} twice")
            self._file.metadata[key] = self._value(self._unpack("<I", f"the type of {key!r}"), key)
        table = [self._tensor() for _ in range(tensors)]
        alignment = self._file.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._error(f"general.alignment is {alignment!r}, expected a power of two")
        start = -(-self._at // alignment) * alignment
        for name, dims, kind, offset in table:
            self._place(name, dims, kind, start + offset)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._text("a tensor's name")
        rank = self._unpack("<I", f"the rank of {name!r}")
        if not 1 <= rank <= _MOST_DIMS:
            raise self._error(f"tensor {name!r} has {rank} axes, expected 1 to {_MOST_DIMS}")
        dims = struct.unpack(f"<{rank}Q", self._take(8 * rank, f"the shape of {name!r}"))
        return (
            name,
            dims[::-1],
            self._unpack("<I", f"the type of {name!r}"),
            self._unpack("<Q", f"the place of {name!r}"),
        )

    def _place(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> None:
        _, kinds = _import_gguf()
        from gguf.constants import GGML_QUANT_SIZES

        if name in self._file.tensors:
            raise self._error(f"it has the tensor {name!r} twice")
        try:
            known = kinds(kind)
            block, block_bytes = GGML_QUANT_SIZES[known]
        except (ValueError, KeyError):
            raise self._error(
                f"tensor {name!r} has type {kind}, which the package gguf does not know; {_INSTEAD}"
            ) from None
        if not all(shape) or shape[-1] % block:
            raise self._error(
                f"tensor {name!r} of type {known.name} has shape {list(shape)}, expected rows of a multiple of {block}"
            )
        tensor = GgufTensor(shape, kind, known.name, offset, shape[-1] // block * block_bytes)
        if offset + tensor.bytes > len(self._view):
            raise self._error(
                f"tensor {name!r} takes bytes {offset} to {offset + tensor.bytes}, but the file has {len(self._view)} "
                "(truncated download?)"
            )
        self._file.tensors[name] = tensor

    def _value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self._numbers(kind, 1, key).tolist()[0]
        if kind == _STRING:
            return self._text(f"the value of {key!r}")
        if kind != _ARRAY:
            raise self._error(f"key {key!r} has type {kind}, expected 0 to 12")
        item = self._unpack("<I", f"the type of {key!r}")
        if item in _SCALARS:
            size = np.dtype(_SCALARS[item]).itemsize
            return self._numbers(item, self._count("<Q", _MOST_ITEMS, size, f"items of {key!r}"), key)
        if item != _STRING:
            raise self._error(f"key {key!r} is an array of type {item}, expected numbers or strings")
        return [
            self._text(f"an item of {key!r}") for _ in range(self._count("<Q", _MOST_ITEMS, 8, f"items of {key!r}"))
        ]

    def _numbers(self, kind: int, count: int, key: str) -> NDArray[Any]:
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(self._take(dtype.itemsize * count, f"the value of {key!r}"), dtype)

    def _text(self, what: str) -> str:
        length = self._unpack("<Q", what)
        if length > _MOST_TEXT:
            raise self._error(f"{what} has {length} bytes, expected at most {_MOST_TEXT}")
        try:
            return self._take(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self._error(f"{what} is no UTF-8") from None

    def _count(self, form: str, most: int, least_bytes: int, what: str) -> int:
        count = self._unpack(form, f"the number of {what}")
        if count > most or count * least_bytes > len(self._view) - self._at:
            raise self._error(f"it says it has {count} {what}, which do not fit its {len(self._view)} bytes")
        return count

    def _unpack(self, form: str, what: str) -> int:
        (number,) = struct.unpack(form, self._take(struct.calcsize(form), what))
        return int(number)

    def _take(self, count: int, what: str) -> bytes:
        data = self._view[self._at : self._at + count]
        if len(data) != count:
            raise self._error(f"it ends in {what}, after {len(self._view)} bytes (truncated download?)")
        self._at += count
        return data

    def _error(self, text: str) -> CheckpointError:
        return CheckpointError(f"{self._file.path} is not a readable GGUF file: {text}")


def _import_gguf() -> tuple[Any, Any]:
    """Returns the module that dequantises, and the enumeration of tensor types."""
    try:
        from gguf import quants
        from gguf.constants import GGMLQuantizationType
    except ImportError:
        raise need_extra("gguf", "reading a GGUF file", "gguf") from None
    return quants, GGMLQuantizationType


def open_parts(path: Path) -> list[GgufFile]:
    """Opens a file and, where it is one of several that llama.cpp split, the others: `NAME-00001-of-00003.gguf`.

    Raises:
        CheckpointError: A file cannot be read, or one of the others is missing.
    """
    first = GgufFile(path)
    count, number = (_whole(first.metadata, key) for key in ("split.count", "split.no"))
    if count <= 1:
        return [first]
    suffix = f"-{number + 1:05}-of-{count:05}.gguf"
    if not path.name.endswith(suffix) or count > 10000:
        raise CheckpointError(f"{path} is part {number + 1} of {count}, expected a name that ends in {suffix}")
    names = [f"{path.name.removesuffix(suffix)}-{part + 1:05}-of-{count:05}.gguf" for part in range(count)]
    if missing := [name for name in names if not (path.parent / name).is_file()]:
        raise CheckpointError(f"{path} is part {number + 1} of {count}, and {missing[0]} is not beside it")
    return [first if part == number else GgufFile(path.parent / name) for part, name in enumerate(names)]


def _whole(metadata: Mapping[str, Any], key: str) -> int:
    value = metadata.get(key, 0)
    return value if isinstance(value, int) else 0
