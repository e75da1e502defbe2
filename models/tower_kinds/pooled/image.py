"""Images of one size: which patches the processor of Gemma 4 makes of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcim_lite.image_grid import pooled_grid

from ...common.errors import CompileError
from ..asked import Asked
from .sizes import PooledSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSize:
    """What is made of an image.

    Attributes:
        height: Of the image that a program hands to the processor, in pixels.
        width: Of the same.
        rows: Of patches.
        columns: Likewise.
        kernel: Side of a token in patches.
    """

    height: int
    width: int
    rows: int
    columns: int
    kernel: int

    @property
    def patches(self) -> int:
        """All of them, none of which is padding."""
        return self.rows * self.columns

    @property
    def tokens(self) -> int:
        """Of the image."""
        return self.patches // self.kernel**2

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the column and the row of every patch."""
        row, column = np.divmod(np.arange(self.patches), self.columns)
        return column, row

    def pooling(self) -> NDArray[np.float64]:
        """Returns how much each patch counts in each token, [tokens, patches]."""
        column, row = (place // self.kernel for place in self.places())
        token = row * (self.columns // self.kernel) + column
        return np.equal.outer(np.arange(self.tokens), token) / self.kernel**2


def one_size(asked: Asked, config: PooledSizes) -> OneSize:
    """The patches of images of the size that `--vision HxW` says.

    Each is a token, as in the vendor's graphs; of a size that the processor leaves as it is where it pools, they are
    pooled.

    Raises:
        CompileError: It is no such size.
    """
    asked.refuse_mask()
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", asked.size)
    height, width = (int(side) for side in found.groups()) if found else (0, 0)
    if not height or not width:
        raise CompileError(
            f"--vision {asked.size}: expected height x width of the images in pixels, such as --vision 448x448, or how "
            f"many tokens an image has at most, such as --vision {config.tower.tokens}"
        )
    side = config["patch_size"]
    for kernel in (config["pooling_kernel_size"], 1):
        rows, columns = (kernel * count for count in pooled_grid(height, width, kernel * side, config.tower.tokens))
        if kernel == 1 or (rows * side, columns * side) == (height, width):
            break
    if max(rows, columns) > (most := config["position_embedding_size"]):
        raise CompileError(
            f"--vision {asked.size} makes {rows} x {columns} patches, but the tower has {most} positions along a side "
            "(position_embedding_size)"
        )
    return OneSize(height=height, width=width, rows=rows, columns=columns, kernel=kernel)
