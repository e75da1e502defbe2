"""The embedding table host code looks tokens up in: `hmquant/quant_embedding.bin` and `.pt`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .matrix import Matrix
from .pack_stream import row_chunks, to_fp16


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
                half.tofile(file)
            else:
                rows.tofile(file)
            advance(rows.size)
    return total


def write_embedding_pt(path: Path, binary: Path, shape: tuple[int, int], dtype: str) -> bool:
    """Writes ``{"weight": tensor}`` so that `torch.load` reads it with its defaults; maps `binary`, copies nothing.

    Returns:
        False, with nothing written, where torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    # Copy-on-write: torch wants a writable array, the file stays as it is.
    table = np.memmap(binary, dtype=dtype, mode="c", shape=shape)
    # The archive inside is called like the file, `quant_embedding`, which vendor code relies on.
    torch.save({"weight": torch.from_numpy(table)}, str(path))
    return True


def pt_hint(package: Path) -> str:
    """Returns the line that says how to get the `.pt` file."""
    return (
        f"{package / 'hmquant/quant_embedding.pt'} was not written because torch is not installed: only scripts that "
        "torch.load it need it; pip install torch and compile again, or read quant_embedding.bin"
    )
