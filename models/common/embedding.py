"""The embedding table host code looks tokens up in: `hmquant/quant_embedding.bin` and `.pt`."""

from __future__ import annotations

import math
import pickle
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..weights.matrix import Matrix
from ..weights.pack_stream import row_chunks, to_fp16

_ORDERED = b"ccollections\nOrderedDict\n)R"  # an empty one, as operations of pickle
_STORAGES = {"float16": b"HalfStorage", "float32": b"FloatStorage"}


def write_embedding_bin(path: Path, table: Matrix, dtype: str, advance: Callable[[int], None]) -> int:
    """Writes the table row-major without a header, a few rows at a time.

    Args:
        path: File to write.
        table: [V, H].
        dtype: float16 or float32.
        advance: Called with the number of elements written since the last call.

    Returns:
        How many values were beyond fp16 and saturated at +-65504.
    """
    total = 0
    with path.open("wb") as file:
        for start, stop in row_chunks(table.shape):
            rows = table.read(start, stop)
            if dtype == "float16":
                half, saturated = to_fp16(rows)
                total += saturated
                file.write(half.data)
            else:
                file.write(np.ascontiguousarray(rows).data)
            advance(rows.size)
    return total


def write_embedding_pt(
    path: Path,
    binary: Path,
    shapes: Sequence[tuple[int, ...]],
    dtype: str,
    *,
    names: Sequence[str] = (),
    within: str = "",
    bare: bool = False,
    listed: str = "",
) -> None:
    """Writes ``{"weight": tensor}`` as `torch.save` does, of what is in `binary`, so that `torch.load` reads it.

    The vendor's programs take the table as `torch.load(path)["weight"]` or, like that of a module, as
    `torch.load(path).weight`: it is an `OrderedDict` that has its item as an attribute as well.

    Several tables, which `binary` has one under the other, are ``{"0.weight": tensor, "1.weight": tensor, ...}``.

    `names` are others, of tables or vectors, and the tables may lie in a dictionary `within` that of the file, or be a
    list that it calls `listed`. One `bare` table lies in none.

    Without torch, whose import takes seconds. The file is an archive of a pickle that names torch's classes, and of the
    plain values beside it, in a folder that is called like the file, which vendor code relies on.
    """
    loaded = _pickled(shapes, dtype, names or _names(len(shapes)), within, bare, listed)
    small = {
        "data.pkl": b"\x80\x02" + loaded + b".",
        "byteorder": sys.byteorder.encode(),
        "version": b"3\n",
    }
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in small.items():
            archive.writestr(zipfile.ZipInfo(f"{path.stem}/{name}"), content)
        info = zipfile.ZipInfo(f"{path.stem}/data/0")
        info.file_size = binary.stat().st_size
        # torch can map the values if they begin at a multiple of 64: after a header of 30 bytes, the name, a
        # field of 20 bytes for large sizes, and one of our own that fills up.
        begin = file.tell() + 30 + len(info.filename) + 20 + 4
        info.extra = struct.pack("<2sH", b"FB", -begin % 64).ljust(4 + -begin % 64, b"Z")
        with archive.open(info, "w", force_zip64=True) as target, binary.open("rb") as source:
            shutil.copyfileobj(source, target, 1 << 20)


def _names(count: int) -> Sequence[str]:
    return ["weight"] if count == 1 else [f"{number}.weight" for number in range(count)]


def _pickled(
    shapes: Sequence[tuple[int, ...]], dtype: str, names: Sequence[str], within: str, bare: bool, listed: str
) -> bytes:
    """What pickle loads as these tables; arguments as those of `write_embedding_pt`."""
    elements = sum(map(math.prod, shapes))
    storage = b"ctorch\n" + _STORAGES[dtype] + b"\n"
    # Of a storage: (what it is, its class, its name in data/, where it was, elements). Of a tensor: (storage, first
    # element, shape, strides, requires_grad, hooks).
    persistent = b"(" + _text("storage") + storage + _text("0") + _text("cpu") + _number(elements) + b"tQ"
    tensors, items, first = b"", b"", 0
    for name, shape in zip(names, shapes, strict=True):
        sizes = _numbers(shape) + _numbers([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])
        made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + persistent + _number(first) + sizes
        made += b"\x89" + _ORDERED + b"tR"
        tensors += _text(name) + made + (b"q\x00s" if len(shapes) == 1 else b"s")
        items += made + b"a"
        first += math.prod(shape)
    # Of one table: remembered as 0, and so the attribute is the same tensor.
    loaded = b"}" + tensors if len(shapes) > 1 else _ORDERED + tensors + b"}" + _text("weight") + b"h\x00sb"
    if within:
        loaded = b"}" + _text(within) + b"}" + tensors + b"s"
    if listed:
        loaded = b"}" + _text(listed) + b"]" + items + b"s"
    return made if bare else loaded


def _text(value: str) -> bytes:
    """As an operation of pickle, as `_number`."""
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def _numbers(values: Sequence[int]) -> bytes:
    """A tuple of one or two."""
    return b"".join(map(_number, values)) + {1: b"\x85", 2: b"\x86"}[len(values)]


def _number(value: int) -> bytes:
    return pickle.dumps(value, 2)[2:-1]
