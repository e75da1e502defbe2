"""Where the patches of an image lie, as vision towers count them; for compilers and for programs.

An image is cut into patches, a grid of rows x columns. Those of a token of the language model, merge x merge, lie one
behind the other (merge-major): tokens row by row, and the patches of each row by row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def merge_major(grid: NDArray[Any], merge: int) -> NDArray[Any]:
    """[.., rows, columns] -> [.., rows * columns] in the order of a tower."""
    *leading, rows, columns = grid.shape
    cells = grid.reshape(*leading, rows // merge, merge, columns // merge, merge)
    return cells.swapaxes(-3, -2).reshape(*leading, rows * columns)


def patch_places(rows: int, columns: int, merge: int) -> NDArray[np.int32]:
    """Row and column of each patch, [2, rows * columns]."""
    return merge_major(np.indices((rows, columns), np.int32), merge)


def table_corners(
    rows: int, columns: int, merge: int, side: int, centred: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """What each patch takes from a learned table of side x side positions that is stretched over the grid.

    Its outer positions lie where the outer patches do, or, if `centred`, all lie in the middle of equal cells.

    Returns:
        Numbers of the four positions around it, [4, rows * columns], and what each counts.
    """
    low, high, share = zip(*(_between(extent, side, centred) for extent in (rows, columns)), strict=True)
    lines, across = (low[0], high[0]), (low[1], high[1])
    parts = [np.stack((1 - part, part)) for part in share]
    ids = np.stack([line[:, None] * side + column[None] for line in lines for column in across])
    counts = np.stack([line[:, None] * column[None] for line in parts[0] for column in parts[1]])
    return merge_major(ids, merge).astype(np.int32), merge_major(counts, merge).astype(np.float32)


def _between(extent: int, side: int, centred: bool) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """The lines of a table before and behind each of `extent` lines from its first to its last, and how far it is."""
    lines = np.arange(extent, dtype=np.float32)
    if centred:
        at = (lines + np.float32(0.5)) * np.float32(side) / np.float32(extent) - np.float32(0.5)
        at = np.clip(at, np.float32(0), np.float32(side - 1))
    else:
        at = lines * np.float32(side - 1) / np.float32(max(extent - 1, 1))
    low = np.floor(at).astype(np.int64)
    return low, np.minimum(low + 1, side - 1), at - low.astype(np.float32)


def windows_of(rows: int, columns: int, side: int) -> list[NDArray[np.int32]]:
    """The tokens of each window of side x side, smaller at the right and the lower end; a grid of tokens."""
    tokens = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    return [
        tokens[row : row + side, column : column + side].reshape(-1)
        for row in range(0, rows, side)
        for column in range(0, columns, side)
    ]


def pooled_grid(height: int, width: int, side: int, tokens: int) -> tuple[int, int]:
    """Rows and columns of tokens, each `side` pixels square, that the processor of Gemma 4 makes of an image.

    It is the largest image of about these proportions that has at most so many tokens.
    """
    factor = math.sqrt(tokens * side**2 / (height * width))
    rows, columns = math.floor(factor * height / side), math.floor(factor * width / side)
    if rows == 0:
        rows, columns = 1, min(width // height, tokens)
    elif columns == 0:
        rows, columns = min(height // width, tokens), 1
    return rows, columns
