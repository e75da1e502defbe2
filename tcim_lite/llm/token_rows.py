"""Rows of tokens for graphs whose layers have inputs of their own: those of the embedding, and behind them the others.

Gemma 4 E2B and E4B have a second table, [V, layers * size], which is several times as large as the embedding and stays
on disk. What a program passes around as the embedding is then of this class: it is indexed by tokens as an array is.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

LAYER_TABLE = Path("hmquant/per_layer_input_embedding.pt")


class TokenRows:
    """An embedding [V, H] and a table [V, N], as one of [V, H + N].

    Attributes:
        shape: (V, H + N).
        dtype: Of both.
    """

    def __init__(self, embedding: np.ndarray, table: np.ndarray):
        self._embedding, self._table = embedding, table
        self.shape = (len(embedding), embedding.shape[1] + table.shape[1])
        self.dtype = embedding.dtype

    def __len__(self) -> int:
        return len(self._embedding)

    def __getitem__(self, tokens: Any) -> np.ndarray:
        """Rows of a token, or of several."""
        return np.concatenate((self._embedding[tokens], self._table[tokens]), axis=-1)


def layer_table(path: Path, rows: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Maps the table of a package, [rows, N].

    Args:
        path: What `tcim-lite compile` wrote: an archive as `torch.save` makes it, of one tensor.
        rows: V.
        dtype: Of the embedding, which is that of the table.

    Raises:
        ValueError: It is no such file, or does not have so many rows.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            (info,) = (each for each in archive.infolist() if each.filename.endswith("/data/0"))
            file.seek(info.header_offset + 26)
            names = np.frombuffer(file.read(4), "<u2")  # bytes of the name, and of what follows it
            begin, size = info.header_offset + 30 + int(names.sum()), info.file_size
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not the table of a package: {error}; compile the checkpoint again") from None
    elements = size // dtype.itemsize
    if size % dtype.itemsize or elements % rows or not elements:
        raise ValueError(
            f"{path} has {size} bytes of numbers, which are not {rows} rows of {dtype}; it belongs to another package"
        )
    return np.memmap(path, dtype, "r", begin, (rows, elements // rows)).view(np.ndarray)
